"""The outermost layer of the web process: what must hold before Django sees a request.

One event loop reads all bodies and gives up those that do not come in time: a sender that is silent holds a connection and no
thread. Threads only work, on requests that are there in full. Each has its own database connections, so there are no more
of them than threads.
"""

import asyncio
import io
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from granian.rsgi import Scope

Environ = dict[str, Any]
Headers = list[tuple[str, str]]
Application = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]

LARGE_BODIES = ("/hooks/", "/api/")
SMALL = 2**20  # bytes of the largest body anywhere else: forms
FREE = 2**16  # bytes of each body that count for nothing, so that small ones get in while large ones use up the room
REFUSALS = {
    408: b'{"detail": "The body did not come in time."}',
    413: b'{"detail": "The body is too large."}',
    503: b'{"detail": "Too many bodies are on their way. Come back later."}',
}


class Refused(Exception):
    """The request is answered with this status before Django sees it."""

    def __init__(self, status: int) -> None:
        self.status = status


class Web:
    """Serves a WSGI application over RSGI. At most `places` requests are worked on at once; `most`: bytes of the largest
    body; `patience`: seconds that a body may take."""

    def __init__(self, application: Application, *, places: int, most: int, patience: float) -> None:
        self._application = application
        self._most = most
        self._patience = patience
        self._workers = ThreadPoolExecutor(places, thread_name_prefix="wakeful-request")
        self._room = Room(places * most)

    async def __rsgi__(self, scope: Scope, protocol: Any) -> None:
        try:
            with self._room.held() as hold:
                body = await self._whole_body(scope, protocol, hold)
                work = asyncio.get_running_loop().run_in_executor(self._workers, self._answer, scope, body)
                status, headers, content = await work
        except Refused as refused:
            status, content = refused.status, REFUSALS[refused.status]
            headers = [("Content-Type", "application/json"), ("Content-Length", str(len(content)))]
            # What is left of the body must not be taken for the next request.
            headers += [("Connection", "close"), *([("Retry-After", "5")] if status == 503 else [])]
        protocol.response_bytes(status, headers, content)

    async def _whole_body(self, scope: Scope, protocol: Any, hold: "Hold") -> bytes:
        text = scope.headers.get("content-length") or "0"
        length = int(text) if text.isascii() and text.isdigit() and len(text) <= 12 else 0
        if length > (self._most if scope.path.startswith(LARGE_BODIES) else SMALL):
            raise Refused(413)
        if not length:
            return b""
        parts = []
        try:
            async with asyncio.timeout(self._patience):
                async for part in protocol:  # one that breaks off ends, too: its reader compares the lengths
                    hold.take(len(part))
                    parts.append(bytes(part))
        except TimeoutError:
            raise Refused(408) from None
        return b"".join(parts)

    def _answer(self, scope: Scope, body: bytes) -> tuple[int, Headers, bytes]:
        begun: list[tuple[int, Headers]] = []

        def start_response(status: str, headers: Headers, exc_info: Any = None) -> None:
            begun.append((int(status[:3]), headers))

        result = self._application(environ_of(scope, body), start_response)
        try:
            content = b"".join(result)
        finally:
            if close := getattr(result, "close", None):
                close()
        status, headers = begun[-1]
        return status, headers, content


def environ_of(scope: Scope, body: bytes) -> Environ:
    """The request as PEP 3333 wants it."""
    name, _, port = scope.server.rpartition(":")
    environ: Environ = {
        "REQUEST_METHOD": scope.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": scope.path.encode().decode("latin-1"),
        "QUERY_STRING": scope.query_string,
        "SERVER_NAME": name.strip("[]"),
        "SERVER_PORT": port,
        "SERVER_PROTOCOL": f"HTTP/{scope.http_version}",
        "REMOTE_ADDR": scope.client.rpartition(":")[0].strip("[]"),
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scope.scheme,
        "wsgi.input": io.BytesIO(body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }
    for field, value in scope.headers.items():
        if "_" in field:
            continue  # to a WSGI application it would be the field with hyphens, which a proxy sets or a signature covers
        key = field.upper().replace("-", "_")
        key = key if key in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{key}"
        separator = "; " if field == "cookie" else ","
        environ[key] = f"{environ[key]}{separator}{value}" if key in environ else value
    return environ


class Room:
    """The bytes that all bodies together may take while they are read and worked on. Only the event loop touches it."""

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
        """Refused where more would be taken than there is."""
        if self.left + bytes < 0:
            raise Refused(503)
        self.left += bytes


@dataclass
class Hold:
    """What one body takes of the room."""

    room: Room
    length: int = 0
    taken: int = 0

    def take(self, bytes: int) -> None:
        self.length += bytes
        more = max(self.length - FREE, 0) - self.taken
        if more > 0:
            self.room.change(-more)
            self.taken += more
