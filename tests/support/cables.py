"""The TCP connections of a host to a server, which a test may slow down, silence or cut.

    with cabling() as lay:
        cable = lay(5432)          # 127.0.0.1:5432 is reached at 127.0.0.1:{cable.port} as well
        cable.latency = 0.005      # seconds that everything takes to the server
        cable.silence()            # nothing arrives in either direction, and no connection ends
        cable.deafen()             # requests arrive, and its answers do not arrive
        cable.cut()                # connections are reset, and new ones refused
        cable.heal()               # what was held back arrives, as after TCP has sent it again; `lossy`: those connections are reset

A silent cable acknowledges what it takes, as a proxy or a pooler does that stands still: no keepalive of TCP notices it.
"""

import asyncio
import selectors
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

Way = Literal["to the server", "to the host"]
TO_SERVER: Way = "to the server"
TO_HOST: Way = "to the host"
AT_ONCE = struct.pack("ii", 1, 0)  # SO_LINGER: a close resets the connection


class Cable:
    """All connections of one host to one server."""

    def __init__(self, loop: asyncio.AbstractEventLoop, server_port: int, address: str) -> None:
        self.latency = 0.0
        self.address, self.port = address, 0
        self._loop = loop
        self._server_port = server_port
        self._held_ways: set[str] = set()
        self._is_cut = False
        self._ends: set[End] = set()
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        self._server = await self._loop.create_server(self._accept, self.address, 0, backlog=512)
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        if self._server:
            self._server.close()
        for end in list(self._ends):
            end.reset()

    # For tests

    def silence(self) -> None:
        self._soon(self._held_ways.update, {TO_SERVER, TO_HOST})

    def deafen(self) -> None:
        self._soon(self._held_ways.add, TO_HOST)

    def cut(self) -> None:
        self._soon(self._cut)

    def heal(self, *, lossy: bool = False) -> None:
        self._soon(self._heal, lossy)

    # In the loop

    def holds(self, way: Way) -> bool:
        return way in self._held_ways

    def _soon(self, do: Callable[..., Any], *arguments: Any) -> None:
        done = threading.Event()

        def run() -> None:
            do(*arguments)
            done.set()

        self._loop.call_soon_threadsafe(run)
        assert done.wait(60)

    def _cut(self) -> None:
        self._is_cut = True
        for end in list(self._ends):
            end.reset()

    def _heal(self, lossy: bool) -> None:
        self._is_cut = False
        self._held_ways.clear()
        for end in list(self._ends):
            if lossy and end.held:
                end.reset()
            else:
                end.flush()
            self.lost(end)

    def _accept(self) -> "End":
        host = End(self, TO_SERVER)
        host.on_open = self._join
        return host

    def _join(self, host: "End") -> None:
        if self._is_cut:
            host.reset()
            return
        self._keep(self._reach(host))

    async def _reach(self, host: "End") -> None:
        server = End(self, TO_HOST)
        try:
            await self._loop.create_connection(lambda: server, "127.0.0.1", self._server_port)
        except OSError:
            host.reset()
            return
        host.other, server.other = server, host
        if not host.is_open:
            server.reset()
        for end in (host, server):
            end.flush()

    def _keep(self, work: Any) -> None:
        task = self._loop.create_task(work)
        _tasks.add(task)
        task.add_done_callback(_tasks.discard)

    def opened(self, end: "End") -> None:
        self._ends.add(end)

    def lost(self, end: "End") -> None:
        """Unless it still holds what the other end has not received: the end of the connection, for one."""
        if not end.is_open and not end.held:
            self._ends.discard(end)

    def later(self, end: "End", data: bytes | None) -> None:
        self._loop.call_later(self.latency, end.deliver, data)


class End(asyncio.Protocol):
    """One end of a connection; what it receives goes to the other end. None among what is held is the end of it."""

    def __init__(self, cable: Cable, way: Way) -> None:
        self.cable, self.way = cable, way
        self.other: End | None = None
        self.held: list[bytes | None] = []
        self.is_open = False
        self.on_open: Callable[[End], None] = lambda end: None
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport, self.is_open = transport, True
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.cable.opened(self)
        self.on_open(self)

    def data_received(self, data: bytes) -> None:
        self.carry(data)

    def connection_lost(self, error: Exception | None) -> None:
        if self.is_open:
            self.is_open = False
            self.carry(None)
        self.cable.lost(self)

    def carry(self, data: bytes | None) -> None:
        if self.cable.latency and self.way == TO_SERVER:
            self.cable.later(self, data)
        else:
            self.deliver(data)

    def deliver(self, data: bytes | None) -> None:
        if self.held or self.other is None or self.cable.holds(self.way):
            self.held.append(data)
        else:
            self._pass_on(data)

    def flush(self) -> None:
        if self.other is not None and not self.cable.holds(self.way):
            held, self.held = self.held, []
            for data in held:
                self._pass_on(data)

    def _pass_on(self, data: bytes | None) -> None:
        assert self.other
        if data is None:
            self.other.is_open = False
            self.other.transport.close()
        elif self.other.is_open:
            self.other.transport.write(data)

    def reset(self) -> None:
        self.held.clear()
        for end in (self, self.other):
            if end and end.transport and not end.transport.is_closing():
                end.is_open = False
                end.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
                end.transport.abort()


_tasks: set[Any] = set()


@contextmanager
def cabling(address: str = "127.0.0.1") -> Iterator[Callable[[int], Cable]]:
    """A function that lays a cable to a port of this machine, which is reached at this address; all of them are gone afterwards."""
    # select(), since epoll rounds pauses up to milliseconds.
    loop = asyncio.SelectorEventLoop(selectors.SelectSelector())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    laid: list[Cable] = []

    def lay(port: int) -> Cable:
        cable = Cable(loop, port, address)
        asyncio.run_coroutine_threadsafe(cable.open(), loop).result(10)
        laid.append(cable)
        return cable

    try:
        yield lay
    finally:
        for cable in laid:
            cable._soon(cable.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()
