"""Deliveries a second that a web process takes, each on disk before its answer: ours beside a bare DRF view."""

import base64
import hashlib
import hmac
import json
import os
import selectors
import socket
import sys
import time
from collections.abc import Sequence
from uuid import uuid4

from bench.ground.pace import await_word

CONNECTIONS = 16
KILOBYTE = json.dumps({"type": "bench.unheard", "text": "x" * 1000}).encode()
SECRET = os.environ.get("BENCH_SECRET", "whsec_" + base64.b64encode(b"for the bench only, 32 bytes ...").decode())


def signed_request(port: int, id: str, timestamp: int, *, cookie: bool = False) -> bytes:
    """A Standard Webhooks delivery; the bare view reads neither its headers nor its signature."""
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    content = b"%s.%d.%s" % (id.encode(), timestamp, KILOBYTE)
    signature = base64.b64encode(hmac.digest(key, content, hashlib.sha256)).decode()
    head = (
        f"POST /hooks/bench/ HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(KILOBYTE)}\r\nwebhook-id: {id}\r\nwebhook-timestamp: {timestamp}\r\n"
        f"webhook-signature: v1,{signature}\r\n" + ("Cookie: a=b\r\n\r\n" if cookie else "\r\n")
    )
    return head.encode() + KILOBYTE


def deliver(port: int, requests: Sequence[bytes]) -> float:
    """Send all of them over a few kept connections, one at a time on each; the seconds until the last answer."""
    waiting = iter(requests)
    left = len(requests)
    answers: dict[socket.socket, bytes] = {}
    with selectors.DefaultSelector() as selector:
        began = time.perf_counter()
        for _ in range(min(CONNECTIONS, left)):
            connection = socket.create_connection(("127.0.0.1", port))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            selector.register(connection, selectors.EVENT_READ)
            connection.sendall(next(waiting))
        while left:
            for ready, _ in selector.select(timeout=30):
                connection = ready.fileobj  # type: ignore[assignment]
                answers[connection] = answer = answers.get(connection, b"") + connection.recv(65536)
                if not is_whole(answer):
                    continue
                if not answer.startswith(b"HTTP/1.1 202"):
                    raise RuntimeError(f"refused: {answer[:500]!r}")
                answers[connection] = b""
                left -= 1
                if request := next(waiting, None):
                    connection.sendall(request)
        seconds = time.perf_counter() - began
        for registered in list(selector.get_map().values()):
            registered.fileobj.close()  # type: ignore[union-attr]
    return seconds


def deliver_paced(port: int, requests: Sequence[bytes], rate: float) -> list[float]:
    """Send them at this rate over as many connections as it takes; the seconds from when each was due to its answer."""
    waits: list[float] = []
    idle: list[socket.socket] = []
    due: dict[socket.socket, float] = {}
    answers: dict[socket.socket, bytes] = {}
    sent = 0
    with selectors.DefaultSelector() as selector:
        began = time.perf_counter()
        while len(waits) < len(requests):
            now = time.perf_counter() - began
            while sent < len(requests) and sent / rate <= now:
                if idle:
                    connection = idle.pop()
                else:
                    connection = socket.create_connection(("127.0.0.1", port))
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    selector.register(connection, selectors.EVENT_READ)
                connection.sendall(requests[sent])
                due[connection], answers[connection] = sent / rate, b""
                sent += 1
            pause = max(0.0, sent / rate - (time.perf_counter() - began)) if sent < len(requests) else 30
            for ready, _ in selector.select(pause):
                connection = ready.fileobj  # type: ignore[assignment]
                answers[connection] += connection.recv(65536)
                if is_whole(answers[connection]):
                    if not answers[connection].startswith(b"HTTP/1.1 202"):
                        raise RuntimeError(f"refused: {answers[connection][:500]!r}")
                    waits.append(time.perf_counter() - began - due.pop(connection))
                    idle.append(connection)
        for registered in list(selector.get_map().values()):
            registered.fileobj.close()  # type: ignore[union-attr]
    return waits


def is_whole(answer: bytes) -> bool:
    head, end, body = answer.partition(b"\r\n\r\n")
    _, says, length = head.lower().partition(b"content-length:")
    return len(body) == int(length.split()[0]) if says else bool(end) and body.endswith(b"0\r\n\r\n")


if __name__ == "__main__":
    port, count, cookie = map(int, sys.argv[1:4])
    now = int(time.time())
    prepared = [signed_request(port, f"msg_{uuid4().hex}", now, cookie=bool(cookie)) for _ in range(count)]
    await_word()
    if len(sys.argv) > 4:
        print(json.dumps({"waits": deliver_paced(port, prepared, float(sys.argv[4]))}))
    else:
        print(json.dumps({"rate": count / deliver(port, prepared)}))
