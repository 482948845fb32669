"""What holds before Django sees a request, on the real web process."""

import io
import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from config.web import FREE, Web
from tests.stack import Stack
from tests.triggers.sources.webhooks.hooks import make_source, signed

PLACES = 13


@contextmanager
def unfinished(
    web: Stack, count: int, *, path: str = "/hooks/shop/", length: int = 1000
) -> Iterator[list[socket.socket]]:
    """Requests whose bodies stop after the first byte."""
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {length}\r\n\r\n{{"
    with ExitStack() as stack:
        sockets = [
            stack.enter_context(closing(socket.create_connection(("127.0.0.1", web.port)))) for _ in range(count)
        ]
        for one in sockets:
            one.settimeout(20)
            one.sendall(head.encode())
        yield sockets


def status_of(connection: socket.socket) -> int:
    return int(connection.recv(65536).split()[1])


@pytest.fixture
def web(stack: Stack) -> Stack:
    with stack.orm():
        make_source()
    stack.start(
        "web", env={"WAKEFUL_WEB_REQUESTS": str(PLACES), "HTTP_PROXY": "http://corp:pr0xy@proxy:3128", "HTTP_X_ID": "e"}
    )
    return stack


def test_unfinished_bodies_stop_nobody_else(web: Stack) -> None:
    """Three times as many as requests are worked on at once, over each of the doors."""
    with unfinished(web, PLACES * 2), unfinished(web, PLACES, path="/admin/login/"):
        for number in range(PLACES * 2):
            assert web.request("GET", "/health/live").status == 200
            answer = web.request("POST", "/hooks/shop/", body=b"{}", headers=signed(b"{}", id_=f"d-{number}"))
            assert answer.status == 202

    connections = "SELECT count(*)::int AS count FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    assert web.query(connections)[0]["count"] <= PLACES + 1


def test_a_body_that_comes_in_pieces_is_one_body(web: Stack) -> None:
    body = json.dumps({"text": "x" * 200_000}).encode()
    head = "".join(f"{name}: {value}\r\n" for name, value in signed(body).items())
    with closing(socket.create_connection(("127.0.0.1", web.port), timeout=20)) as sender:
        sender.sendall(
            f"POST /hooks/shop/ HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n{head}\r\n".encode()
        )
        for start in range(0, len(body), 50_000):
            sender.sendall(body[start : start + 50_000])

        assert status_of(sender) == 202


def test_a_body_that_is_too_large_is_refused_unread(web: Stack) -> None:
    for path, length in (("/hooks/shop/", 26 * 2**20), ("/admin/login/", 2**20 + 1)):
        with unfinished(web, 1, path=path, length=length) as [sender]:
            assert status_of(sender) == 413


def test_nothing_of_the_environment_is_a_header(web: Stack) -> None:
    body = b"{}"
    web.request("POST", "/hooks/shop/", body=body, headers=signed(body))

    [event] = web.query("SELECT headers, ce_id FROM triggers_event")
    assert "pr0xy" not in json.dumps(event["headers"])
    assert event["ce_id"] == "d-1"  # what a sender says counts, also under a name that the environment has


@pytest.mark.django_db
def test_a_form_takes_no_file() -> None:
    """Django would write it to disk, however large, before it asks who sends it."""
    client = Client(enforce_csrf_checks=True)
    client.get("/admin/login/")

    answer = client.post("/admin/login/", {"file": SimpleUploadedFile("a.txt", b"x")})

    assert answer.status_code == 400


def run(web: Web, body: bytes = b"", environ: dict[str, Any] | None = None) -> tuple[int, bytes]:
    answers: list[str] = []
    length = {"CONTENT_LENGTH": str(len(body))} if body else {}
    request = {"PATH_INFO": "/hooks/shop/", "wsgi.input": io.BytesIO(body), **length, **(environ or {})}
    content = b"".join(web(request, lambda status, headers: answers.append(status)))
    return int(answers[0][:3]), content


def echo(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    start_response("200 OK", [])
    return [environ["wsgi.input"].read()]


def test_a_body_that_comes_too_slowly_is_408() -> None:
    class Dripping(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            time.sleep(0.002)
            return super().read(1)

    web = Web(echo, places=1, most=1000, patience=0.01)

    assert run(web, b"x" * 1000, {"wsgi.input": Dripping(b"x" * 1000)})[0] == 408
    assert run(web, b"fine") == (200, b"fine")


def test_large_bodies_leave_room_for_small_ones_and_give_theirs_back() -> None:
    most = 4 * FREE
    inside: list[tuple[int, bytes]] = []

    def nested(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        body = environ["wsgi.input"].read()
        if len(body) == most:
            inside.extend([run(other, b"x" * most), run(other, b"small")])
        start_response("200 OK", [])
        return [body]

    web = Web(nested, places=1, most=most, patience=10)
    other = Web(echo, places=1, most=most, patience=10)
    other._room = web._room

    for _ in range(2):
        assert run(web, b"x" * most)[0] == 200
    assert [status for status, _ in inside] == [503, 200, 503, 200]
    assert web._room.left == most


def test_the_environment_is_not_taken_for_a_request() -> None:
    def told(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        start_response("200 OK", [])
        return [json.dumps({name: value for name, value in environ.items() if isinstance(value, str)}).encode()]

    environment = {
        "HTTP_PROXY": "http://u:p@proxy",
        "HTTP_X_ID": "mine",
        "DATABASE_URL": "secret",
        "CONTENT_LENGTH": "7",
    }
    web = Web(told, places=1, most=10, patience=1, environment=environment)

    _, content = run(web, environ={**environment, "HTTP_X_ID": "theirs", "REQUEST_METHOD": "GET"})

    assert json.loads(content) == {"PATH_INFO": "/hooks/shop/", "HTTP_X_ID": "theirs", "REQUEST_METHOD": "GET"}
