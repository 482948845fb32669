"""The outermost layer of the web process: what must hold before Django sees a request.

The server's threads read bodies, and there are many more of them than requests that are worked on at once: a sender that
stops in the middle of a body holds a thread that has nothing else to do. Database connections belong to the places for
work, so there are no more of them than places.
"""

import io
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import LifoQueue
from threading import Lock
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

Environ = dict[str, Any]
StartResponse = Callable[..., Any]

LARGE_BODIES = ("/hooks/", "/api/")
SMALL = 2**20  # bytes of the largest body anywhere else: forms
FREE = PART = (
    2**16
)  # bytes of each body that count for nothing, so that small ones get in while large ones use up the room
REFUSALS = {
    408: ("Request Timeout", b'{"detail": "The body did not come in time."}'),
    413: ("Content Too Large", b'{"detail": "The body is too large."}'),
    503: ("Service Unavailable", b'{"detail": "Too many bodies are on their way. Come back later."}'),
}
# What the server sets in every request: PEP 3333.
CGI = frozenset(
    {"REQUEST_METHOD", "SCRIPT_NAME", "PATH_INFO", "QUERY_STRING", "SERVER_NAME", "SERVER_PORT", "SERVER_PROTOCOL"}
    | {"SERVER_SOFTWARE", "GATEWAY_INTERFACE", "REMOTE_ADDR"}
)
FIELDS = ("HTTP_", "CONTENT_")


class Refused(Exception):
    """The request is answered with this status before Django sees it."""

    def __init__(self, status: int) -> None:
        self.status = status


@dataclass
class Place:
    """A place for work: the database connections of the request that is worked on there."""

    connections: dict[str, BaseDatabaseWrapper] = field(default_factory=dict)


class Web:
    """A WSGI application around Django's. At most `places` requests are worked on at once; `most`: bytes of the largest
    body; `patience`: seconds that a body may take."""

    def __init__(
        self,
        application: Callable[[Environ, StartResponse], Iterable[bytes]],
        *,
        places: int,
        most: int,
        patience: float,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self._application = application
        self._most = most
        self._patience = patience
        self._places: LifoQueue[Place] = LifoQueue()
        for _ in range(places):
            self._places.put(Place())
        self._room = Room(places * most)
        # The server lets every request begin with the process's environment: HTTP_PROXY would be a header field `Proxy`.
        self._fields = {name: value for name, value in environment.items() if name.startswith(FIELDS)}
        self._inherited = [name for name in environment if name not in CGI and name not in self._fields]

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        self._forget_environment(environ)
        try:
            with self._whole_body(environ) as body:
                environ["wsgi.input"] = io.BytesIO(body)
                with self._place():
                    return _content(self._application(environ, start_response))
        except Refused as refused:
            reason, content = REFUSALS[refused.status]
            headers = [("Content-Type", "application/json"), ("Content-Length", str(len(content)))]
            start_response(f"{refused.status} {reason}", headers + [("Retry-After", "5")] * (refused.status == 503))
            return [content]

    def _forget_environment(self, environ: Environ) -> None:
        for name in self._inherited:
            environ.pop(name, None)
        for name, value in self._fields.items():
            # Only the value tells whether the sender sent it.
            if environ.get(name) == value:
                del environ[name]

    @contextmanager
    def _whole_body(self, environ: Environ) -> Iterator[bytes]:
        text = environ.get("CONTENT_LENGTH") or "0"
        length = int(text) if text.isascii() and text.isdigit() and len(text) <= 12 else 0
        if length > (self._most if environ["PATH_INFO"].startswith(LARGE_BODIES) else SMALL):
            raise Refused(413)
        with self._room.held() as hold:
            yield b"".join(self._parts(environ["wsgi.input"], length, hold)) if length else b""

    def _parts(self, stream: Any, missing: int, hold: "Hold") -> Iterator[bytes]:
        until = time.monotonic() + self._patience
        while missing > 0:
            part = stream.read(min(PART, missing))
            if not part:
                return  # it broke off; the reader of this body compares the lengths
            if time.monotonic() > until:
                raise Refused(408)
            hold.take(len(part))
            missing -= len(part)
            yield part

    @contextmanager
    def _place(self) -> Iterator[None]:
        place = self._places.get()
        try:
            for alias, connection in place.connections.items():
                connections[alias] = connection
            yield
        finally:
            for connection in connections.all(initialized_only=True):
                if connection.alias not in place.connections:
                    connection.inc_thread_sharing()
                    place.connections[connection.alias] = connection
                del connections[connection.alias]
            self._places.put(place)


class Room:
    """The bytes that all bodies together may take while they are read and worked on."""

    def __init__(self, bytes: int) -> None:
        self.left = bytes
        self._lock = Lock()

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
        with self._lock:
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


def _content(result: Iterable[bytes]) -> list[bytes]:
    # Whole, while the connections are still there: closing a response is part of the work, too.
    try:
        return [b"".join(result)]
    finally:
        if close := getattr(result, "close", None):
            close()
