"""A foreign server, which remembers its calls: a real one, over HTTP."""

import json
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.answering import answering


class Receiver:
    """`/pay` answers a repeated idempotency key as before; `/ring` is done again with every call, and leaves those keys
    without an answer that end in one of `unanswered`; `/gate` answers once the gate is open."""

    def __init__(self) -> None:
        self.calls: dict[str, list[tuple[str, Any]]] = defaultdict(list)  # path → (idempotency key, body)
        self.receipts: dict[str, dict[str, Any]] = {}  # key → what was answered first
        self.unanswered: set[str] = set()
        self.gate = threading.Event()
        self.at_gate = 0
        self.lock = threading.Lock()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.server_address[1]}"

    def keys(self, path: str, run: Any) -> list[str]:
        """The idempotency keys of all calls of a run, one for each call."""
        return [key for key, _ in self.calls[path] if key.startswith(f"{run}:")]

    def bodies(self, path: str, key: str) -> list[Any]:
        return [body for its_key, body in self.calls[path] if its_key == key]

    def answer(self, path: str, key: str, body: Any) -> dict[str, Any] | None:
        """None: it did what was requested, and its answer is lost."""
        if path == "/gate":
            with self.lock:
                self.at_gate += 1
            self.gate.wait(60)
        with self.lock:
            self.calls[path].append((key, body))
            receipt = {"receipt": sum(map(len, self.calls.values()))}
            self.receipts.setdefault(key, receipt)
            if any(key.endswith(end) for end in self.unanswered):
                return None
            return self.receipts[key] if path == "/pay" else receipt

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                answer = receiver.answer(self.path, self.headers["Idempotency-Key"], content)
                if answer is None:
                    self.connection.close()
                    return
                body = json.dumps(answer).encode()
                try:
                    self.send_response(200)
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)
                except OSError:
                    pass  # the caller has died meanwhile

            def log_message(self, *arguments: Any) -> None:
                pass

        return Handler


@contextmanager
def receiving() -> Iterator[Receiver]:
    receiver = Receiver()
    with answering(receiver.server):
        try:
            yield receiver
        finally:
            receiver.gate.set()
