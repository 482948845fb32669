"""A web server that answers as a test sets it up: with lists and feeds, or with what no server should send."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.answering import answering


@dataclass
class Page:
    """`manner`: `endless` (bytes without an end), `drip` (a header field now and then), `silent` (no answer)."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    manner: str = "whole"


class ListServer:
    """Answers by path and query, to POST by "POST " before it; a page with an ETag answers 304 to a request that names it."""

    def __init__(self) -> None:
        self.pages: dict[str, Page] = {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.posted: list[tuple[str, bytes]] = []
        self.gate = threading.Event()  # what is silent is silent until then
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.server.server_port}{path}"

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.asked]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
                page = site.pages.get(self.path, Page(status=404))
                etag = page.headers.get("ETag")
                if etag and self.headers.get("If-None-Match") == etag:
                    page = Page(status=304, headers={"ETag": etag})
                with suppress(OSError):  # the caller has gone
                    self.answer(page)

            def do_POST(self) -> None:
                site.posted.append((self.path, self.rfile.read(int(self.headers.get("Content-Length", 0)))))
                with suppress(OSError):
                    self.answer(site.pages.get(f"POST {self.path}", Page(status=404)))

            def answer(self, page: Page) -> None:
                if page.manner == "silent":
                    site.gate.wait(30)
                    return
                self.send_response(page.status)
                for name, value in page.headers.items():
                    self.send_header(name, value)
                if page.manner == "drip":
                    self.flush_headers()
                    while not site.gate.wait(0.05):
                        self.wfile.write(b"X-More: yes\r\n")
                if page.manner == "endless":
                    self.end_headers()
                    while not site.gate.is_set():
                        self.wfile.write(page.body)
                self.send_header("Content-Length", str(len(page.body)))
                self.end_headers()
                self.wfile.write(page.body)

            def log_message(self, *arguments: Any) -> None:
                pass

        return Handler


@contextmanager
def serving_lists() -> Iterator[ListServer]:
    site = ListServer()
    with answering(site.server):
        try:
            yield site
        finally:
            site.gate.set()
