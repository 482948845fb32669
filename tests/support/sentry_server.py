"""A server that takes what Sentry's SDK sends."""

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.answering import answering


class SentryServer:
    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.envelopes: list[bytes] = []
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True

    @property
    def dsn(self) -> str:
        return f"http://key@127.0.0.1:{self.server.server_address[1]}/1"

    @property
    def everything(self) -> bytes:
        """All that came, with its headers."""
        return b"\n".join(self.envelopes)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                server.take(gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *arguments: Any) -> None:
                pass

        return Handler

    def take(self, envelope: bytes) -> None:
        """A line of headers, and of each item a line of headers and one of its content."""
        lines = envelope.split(b"\n")
        self.envelopes.append(envelope)
        for header, content in zip(lines[1::2], lines[2::2], strict=False):
            if header and json.loads(header).get("type") == "event":
                self.events.append(json.loads(content))


@contextmanager
def sentry_server() -> Iterator[SentryServer]:
    sentry = SentryServer()
    with answering(sentry.server):
        yield sentry
