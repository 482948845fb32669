"""What holds before Django sees a request, on the real web process."""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from config.web import FREE, Refused, Room
from tests.stack import Process, Stack, eventually
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


def threads_of(web: Process) -> int:
    return sum(child.num_threads() for child in web.children())


def clients_of(web: Process) -> int:
    sockets = [one for child in web.children() for one in child.net_connections("tcp4") if one.raddr]
    return sum(one.laddr.port == web.stack.port for one in sockets)


@pytest.fixture
def web(stack: Stack) -> Stack:
    with stack.orm():
        make_source()
    stack.start(
        "web", env={"WAKEFUL_WEB_REQUESTS": str(PLACES), "HTTP_PROXY": "http://corp:pr0xy@proxy:3128", "HTTP_X_ID": "e"}
    )
    return stack


def test_unfinished_bodies_stop_no_other_request(web: Stack) -> None:
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


def test_silent_and_dripping_senders_hold_no_thread_and_are_cut_off(stack: Stack) -> None:
    """600 connections of one client: half of them send nothing more, half a byte now and then, for longer than a body may take."""
    with stack.orm():
        make_source()
    web = stack.start("web", env={"WAKEFUL_WEB_REQUESTS": str(PLACES), "WAKEFUL_BODY_TIMEOUT": "6s"})
    threads = threads_of(web)

    with unfinished(stack, 300, length=100_000) as silent, unfinished(stack, 300, length=100_000) as dripping:
        for number in range(20):
            answer = stack.request("POST", "/hooks/shop/", body=b"{}", headers=signed(b"{}", id_=f"d-{number}"))
            assert answer.status == 202
        assert threads_of(web) <= threads + PLACES
        until = time.monotonic() + 6
        while time.monotonic() < until:
            for one in dripping:
                with suppress(OSError):
                    one.send(b" ")

        assert {status_of(one) for one in silent + dripping} == {408}
        assert {one.recv(1) for one in silent} == {b""}  # hung up

        assert stack.request("GET", "/health/live").status == 200

    eventually(lambda: clients_of(web) == 0)


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


def test_a_field_with_an_underscore_is_no_other_field(web: Stack) -> None:
    """What a proxy sets, or a signature covers, is not overridden by a name that only looks the same to Django."""
    body = b"{}"
    web.request("POST", "/hooks/shop/", body=body, headers={**signed(body), "X_Id": "other", "X_Extra": "1"})

    [event] = web.query("SELECT headers, ce_id FROM triggers_event")
    assert event["ce_id"] == "d-1"
    assert "x-extra" not in event["headers"]


def test_addresses_and_repeated_fields_come_through(web: Stack) -> None:
    body = b"{}"
    fields = "".join(f"{name}: {value}\r\n" for name, value in signed(body).items())
    head = f"POST /hooks/sh%6fp/?a=%20 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n{fields}X-Two: a\r\nX-Two: b\r\n\r\n"
    with closing(socket.create_connection(("127.0.0.1", web.port), timeout=20)) as sender:
        sender.sendall(head.encode() + body)
        assert status_of(sender) == 202

    assert web.query("SELECT headers FROM triggers_event")[0]["headers"]["x-two"] == "a,b"
    assert web.request("POST", "/hooks/%C3%A4/", body=b"{}").status == 404


@pytest.mark.django_db
def test_a_form_takes_no_file() -> None:
    """Django would write it to disk, however large, before it asks who sends it."""
    client = Client(enforce_csrf_checks=True)
    client.get("/admin/login/")

    answer = client.post("/admin/login/", {"file": SimpleUploadedFile("a.txt", b"x")})

    assert answer.status_code == 400


def test_large_bodies_leave_room_for_small_ones_and_give_theirs_back() -> None:
    most = 4 * FREE
    room = Room(most)

    with room.held() as large:
        large.take(most)
        with room.held() as small:
            small.take(FREE)
        with pytest.raises(Refused), room.held() as second:
            second.take(FREE)
            second.take(most)

    assert room.left == most
