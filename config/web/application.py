"""The outermost layer of the web process: limits that apply before Django sees a request.

One event loop reads all bodies, with a time limit: a silent sender holds a connection but no thread. Threads process complete
requests; each has its own database connection, so there are at most as many connections as threads. A request waits for a
thread in the event loop, and ends there if its sender hangs up.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID

from django.core.handlers.wsgi import WSGIRequest
from granian.rsgi import ProtocolClosed, Scope  # type: ignore[attr-defined]
from uuid_utils.compat import uuid7

from config.health.probes import live
from config.web.ingest import Ingest
from config.web.refusals import log_refusal, note_refusal, source_of
from config.web.requests import Environ, environ_of
from config.web.shortcut import Shortcut
from triggers.sources.webhooks.views import ARRIVAL_ID, RAISED

Headers = list[tuple[str, str]]
Answer = tuple[int, Headers, bytes]
T = TypeVar("T")
Application = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]

LARGE_BODIES = ("/hooks/", "/ping/", "/api/")
SMALL = 2**20  # bytes of the largest body anywhere else: forms
# Bytes of each body that are not counted, so that small bodies are accepted while large ones use up the room.
FREE = 2**16
# Waiting requests per place. Senders may not retry after a refusal, so a burst should wait: at 100 requests a second, 16 places
# process 1,024 of them before most senders give up (10 s). With FREE bytes each, they take 64 MB.
WAITING = 64
LIVE = "/health/live"


class Refused(Exception):
    """The request is answered with this status and not passed to Django."""

    def __init__(self, status: int, detail: str) -> None:
        self.status = status
        self.detail = detail
        self.content = json.dumps({"detail": detail}).encode()


class Gone(Exception):
    """The sender hung up before the work began."""


class Web:
    """Serves a WSGI application over RSGI, plain deliveries by the shortcut. `places`: maximum concurrent requests; `most`: bytes of the
    largest body; `patience`: seconds that a body may take."""

    def __init__(
        self,
        application: Application,
        shortcut: Shortcut,
        *,
        places: int,
        most: int,
        patience: float,
        ingest_sessions: int = 0,
    ) -> None:
        self._application = application
        self._shortcut = shortcut
        self._most = most
        self._patience = patience
        self._workers = ThreadPoolExecutor(places, thread_name_prefix="wakeful-request")
        self._places = Places(places)
        self._room = Room(places * most)
        self._ingest = Ingest(shortcut, self._in_thread, sessions=ingest_sessions) if ingest_sessions else None

    async def __rsgi__(self, scope: Scope, protocol: Any) -> None:
        try:
            with self._room.held() as hold:
                answer = await self._answer(scope, protocol, hold)
        except Gone:
            return
        except Refused as refused:
            protocol.response_bytes(refused.status, _headers_of(refused), refused.content)
            await self._leave_trace(scope, protocol, refused)
        else:
            protocol.response_bytes(*answer)

    async def _answer(self, scope: Scope, protocol: Any, hold: "Hold") -> Answer:
        body = await self._whole_body(scope, protocol, hold)
        if scope.path == LIVE:
            return _live(environ_of(scope, body))  # not in a thread: all threads may wait for a database that hangs
        id = uuid7()
        if self._ingest and (answer := await self._ingest.take(scope, body, id)):
            return answer
        async with self._places.held(protocol):
            return await self._in_thread(self._work, scope, body, id)

    async def _leave_trace(self, scope: Scope, protocol: Any, refused: Refused) -> None:
        request = WSGIRequest(environ_of(scope, b""))
        log_refusal(request, refused.status, refused.detail)
        # Bookkeeping must not take a place from a waiting request.
        if source_of(request) and self._places.are_free():
            async with self._places.held(protocol):
                await self._in_thread(note_refusal, request, refused.status, refused.detail)

    async def _in_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._workers, work, *arguments)

    async def _whole_body(self, scope: Scope, protocol: Any, hold: "Hold") -> bytes:
        text = scope.headers.get("content-length") or "0"
        # With more than 13 digits it is too large in any case.
        length = int(text[:13]) if text.isascii() and text.isdigit() else 0
        if length > (self._most if scope.path.startswith(LARGE_BODIES) else SMALL):
            raise Refused(413, "The body is too large.")
        if not length:
            return b""
        try:
            async with asyncio.timeout(self._patience):
                body = await (_at_once(protocol) if length <= FREE else _in_parts(protocol, hold))
        except TimeoutError:
            raise Refused(408, "The body did not arrive in time.") from None
        if len(body) != length:
            raise Refused(400, "The length of the body does not match Content-Length.")
        return body

    def _work(self, scope: Scope, body: bytes, id: UUID) -> Answer:
        try:
            taken = self._shortcut.take(scope, body, id)
        except Exception as error:
            return self._through_django({**environ_of(scope, body), RAISED: error})
        return taken or self._through_django({**environ_of(scope, body), ARRIVAL_ID: id})

    def _through_django(self, environ: Environ) -> Answer:
        begun: list[tuple[int, Headers]] = []

        def start_response(status: str, headers: Headers, exc_info: Any = None) -> None:
            begun.append((int(status[:3]), headers))

        result = self._application(environ, start_response)
        try:
            content = b"".join(result)
        finally:
            if close := getattr(result, "close", None):
                close()
        status, headers = begun[-1]
        return status, headers, content


async def _at_once(protocol: Any) -> bytes:
    try:
        body: bytes = await protocol()
    except ProtocolClosed:  # the sender has broken off
        return b""
    return body


async def _in_parts(protocol: Any, hold: "Hold") -> bytes:
    parts = []
    async for part in protocol:  # also ends if the sender breaks off
        hold.take(len(part))
        parts.append(bytes(part))
    return b"".join(parts)


def _headers_of(refused: Refused) -> Headers:
    headers = [("Content-Type", "application/json"), ("Content-Length", str(len(refused.content)))]
    # The rest of the body must not be read as the next request.
    return [*headers, ("Connection", "close"), *([("Retry-After", "5")] if refused.status == 503 else [])]


def _live(environ: Environ) -> Answer:
    """Call the view without middleware, which may query the database."""
    response = live(WSGIRequest(environ))
    return response.status_code, list(response.items()), response.content


class Places:
    """Places for `count` concurrent requests and WAITING times as many waiting ones. Used only in the event loop."""

    def __init__(self, count: int) -> None:
        self._free = asyncio.Semaphore(count)
        self._most_waiting = count * WAITING
        self._waiting = 0

    def are_free(self) -> bool:
        return not self._free.locked()

    @asynccontextmanager
    async def held(self, protocol: Any) -> AsyncIterator[None]:
        """Take a place. Gone if the sender hangs up while it waits, Refused if too many requests wait."""
        if self.are_free():
            await self._free.acquire()
        else:
            await self._wait(protocol)
        try:
            yield
        finally:
            self._free.release()

    async def _wait(self, protocol: Any) -> None:
        if self._waiting >= self._most_waiting:
            raise Refused(503, "Too many requests are waiting. Try again later.")
        turn = asyncio.ensure_future(self._free.acquire())
        gone = asyncio.ensure_future(protocol.client_disconnect())
        self._waiting += 1
        try:
            done, _ = await asyncio.wait((turn, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._waiting -= 1
            gone.cancel()
        if gone not in done:
            return
        if turn in done:
            self._free.release()
        turn.cancel()
        raise Gone


class Room:
    """The bytes that all bodies in progress may take together. Used only in the event loop."""

    def __init__(self, bytes: int) -> None:
        self.left = bytes

    @contextmanager
    def held(self) -> Iterator["Hold"]:
        hold = Hold(self)
        try:
            yield hold
        finally:
            if hold.taken:
                self.change(hold.taken)

    def change(self, bytes: int) -> None:
        """Change the free bytes. Refused if there are not enough."""
        if self.left + bytes < 0:
            raise Refused(503, "Too many large requests are in progress. Try again later.")
        self.left += bytes


@dataclass
class Hold:
    """The room that one body takes."""

    room: Room
    length: int = 0
    taken: int = 0

    def take(self, bytes: int) -> None:
        self.length += bytes
        more = max(self.length - FREE, 0) - self.taken
        if more > 0:
            self.room.change(-more)
            self.taken += more
