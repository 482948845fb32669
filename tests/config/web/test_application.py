"""What holds before Django sees a request, on the real web process."""

import hashlib
import hmac
import json
import re
import selectors
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from urllib.parse import urlencode

import psycopg
import pytest
from django.contrib.auth.hashers import PBKDF2PasswordHasher
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from config.web.application import FREE, WAITING, Refused, Room
from config.web.refusals import LINES, Lines
from tests.support.hooks import SECRET, make_source, signed_headers
from tests.support.stack import PATIENCE, Process, Stack, StackMaker, eventually

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


@contextmanager
def no_source_can_be_read(web: Stack) -> Iterator[None]:
    with psycopg.connect(web.database_url) as held:
        held.execute("LOCK TABLE triggers_source IN ACCESS EXCLUSIVE MODE")
        yield


def deliveries_that_wait(web: Stack) -> int:
    """Those that have a thread, and wait for the database."""
    waiting = """
        SELECT count(*)::int AS count FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE %s
    """
    count: int = web.query(waiting, "%triggers_source source LEFT JOIN triggers_secret%")[0]["count"]
    return count


def refusals_of(web: Stack) -> list[dict[str, object]]:
    return web.query("SELECT reason, status, count FROM triggers_refuseddelivery ORDER BY status, reason")


def start_web(stack: Stack) -> Stack:
    with stack.orm():
        make_source()
    stack.start(
        "web", env={"WAKEFUL_WEB_REQUESTS": str(PLACES), "HTTP_PROXY": "http://corp:pr0xy@proxy:3128", "HTTP_X_ID": "e"}
    )
    return stack


@pytest.fixture(scope="module")
def web(make_shared_stack: StackMaker) -> Stack:
    return start_web(make_shared_stack())


@pytest.fixture
def new_web(stack: Stack) -> Stack:
    """One that has refused nothing yet."""
    return start_web(stack)


def test_unfinished_bodies_stop_no_other_request(web: Stack) -> None:
    """Three times as many as requests are worked on at once, over each of the doors."""
    with unfinished(web, PLACES * 2), unfinished(web, PLACES, path="/admin/login/"):
        for number in range(PLACES * 2):
            assert web.request("GET", "/health/live").status == 200
            answer = web.request(
                "POST", "/hooks/shop/", body=b"{}", headers=signed_headers(b"{}", id_=f"unfinished-{number}")
            )
            assert answer.status == 202

    connections = "SELECT count(*)::int AS count FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    assert web.query(connections)[0]["count"] <= PLACES + 1


def test_a_body_that_comes_in_pieces_is_one_body(web: Stack) -> None:
    body = json.dumps({"text": "x" * 200_000}).encode()
    head = "".join(f"{name}: {value}\r\n" for name, value in signed_headers(body, id_="pieces").items())
    with closing(socket.create_connection(("127.0.0.1", web.port), timeout=20)) as sender:
        sender.sendall(
            f"POST /hooks/shop/ HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n{head}\r\n".encode()
        )
        for start in range(0, len(body), 50_000):
            sender.sendall(body[start : start + 50_000])

        assert status_of(sender) == 202


@pytest.mark.chaos
def test_silent_and_dripping_senders_hold_no_thread_and_are_cut_off(stack: Stack) -> None:
    """600 connections of one client: half of them send nothing more, half a byte now and then, for longer than a body may take."""
    with stack.orm():
        make_source()
    web = stack.start("web", env={"WAKEFUL_WEB_REQUESTS": str(PLACES), "WAKEFUL_BODY_TIMEOUT": "6s"})
    threads = threads_of(web)

    with unfinished(stack, 300, length=100_000) as silent, unfinished(stack, 300, length=1_000) as dripping:
        for number in range(20):
            answer = stack.request("POST", "/hooks/shop/", body=b"{}", headers=signed_headers(b"{}", id_=f"d-{number}"))
            assert answer.status == 202
        assert threads_of(web) <= threads + PLACES
        until = time.monotonic() + 6
        while time.monotonic() < until:
            for one in dripping:
                with suppress(OSError):
                    one.send(b" ")
            time.sleep(0.1)

        assert {status_of(one) for one in silent + dripping} == {408}
        assert {one.recv(1) for one in silent} == {b""}  # hung up

        assert stack.request("GET", "/health/live").status == 200

    eventually(lambda: clients_of(web) == 0)


def test_a_body_that_is_too_large_is_refused_unread(web: Stack) -> None:
    for path, length in (("/hooks/shop/", 26 * 2**20), ("/admin/login/", 2**20 + 1)):
        with unfinished(web, 1, path=path, length=length) as [sender]:
            assert status_of(sender) == 413


@pytest.mark.chaos
def test_a_refused_request_leaves_a_trace(new_web: Stack) -> None:
    web = new_web
    for path, length in (("/hooks/shop/", 26 * 2**20), ("/hooks/unknown/", 26 * 2**20), ("/approvals/a-token/", 2**21)):
        with unfinished(web, 1, path=path, length=length) as [sender]:
            assert status_of(sender) == 413

    eventually(lambda: refusals_of(web) == [{"reason": "The body is too large.", "status": 413, "count": 1}])
    eventually(lambda: web.processes[0].output().count("web.refused") == 3)
    output = web.processes[0].output()
    assert "/hooks/unknown/" in output
    assert "127.0.0.1" in output
    assert "a-token" not in output


def test_few_of_many_refusals_are_logged_and_the_others_are_counted() -> None:
    lines = Lines()

    assert [lines.take(1) for _ in range(LINES + 3)] == [0] * LINES + [None] * 3
    assert [lines.take(2) for _ in range(2)] == [3, 0]


def test_a_form_that_broke_off_is_not_worked_on(web: Stack) -> None:
    with web.orm():
        hashed = PBKDF2PasswordHasher().encode("right", "salt")
        User.objects.create(username="ada", password=hashed, is_staff=True, is_superuser=True)
    cookies: dict[str, str] = {}

    def talk(method: str, path: str, form: dict[str, str] | None = None, cut: int = 0) -> bytes:
        body = urlencode(form or {}).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: {len(body)}\r\n"
        head += "Content-Type: application/x-www-form-urlencoded\r\n"
        head += f"Cookie: {'; '.join(f'{name}={value}' for name, value in cookies.items())}\r\n\r\n"
        answer = b""
        with closing(socket.create_connection(("127.0.0.1", web.port), timeout=PATIENCE)) as sender:
            sender.sendall(head.encode() + body[: len(body) - cut])
            if cut:
                sender.shutdown(socket.SHUT_WR)
            while part := sender.recv(65536):
                answer += part
        cookies.update(re.findall(r"set-cookie: *([^=]+)=([^;]*)", answer.decode(), re.I))
        return answer

    def token_of(page: bytes) -> str:
        found = re.search(r'csrfmiddlewaretoken" value="([^"]+)"', page.decode())
        assert found
        return found[1]

    token = token_of(talk("GET", "/admin/login/"))
    talk("POST", "/admin/login/", {"csrfmiddlewaretoken": token, "username": "ada", "password": "right"})
    token = token_of(talk("GET", "/admin/auth/user/add/"))
    form = {"csrfmiddlewaretoken": token, "usable_password": "false", "password1": "", "password2": ""}
    answer = talk("POST", "/admin/auth/user/add/", {**form, "username": "eve-the-second"}, cut=len("-the-second"))

    assert answer.split()[1] == b"400"
    assert web.query("SELECT username FROM auth_user WHERE username <> 'ada'") == []


def test_a_delivery_that_broke_off_is_counted_as_refused(new_web: Stack) -> None:
    web = new_web
    with unfinished(web, 1) as [sender]:
        sender.shutdown(socket.SHUT_WR)
        assert status_of(sender) == 400

    reason = "The length of the body does not match Content-Length."
    eventually(lambda: refusals_of(web) == [{"reason": reason, "status": 400, "count": 1}])


@pytest.mark.chaos
def test_a_delivery_that_needs_a_field_that_is_not_ascii_is_refused(new_web: Stack) -> None:
    """Granian leaves out its value. Without its id it would be an event each time it comes."""
    web = new_web
    signature = hmac.new(SECRET.encode(), b"{}", hashlib.sha256).hexdigest()
    fields = f"Host: 127.0.0.1\r\nContent-Length: 2\r\nX-Signature: {signature}\r\nX-Type: order.paid\r\nX-Id: ä-1\r\n"
    with closing(socket.create_connection(("127.0.0.1", web.port), timeout=PATIENCE)) as sender:
        sender.sendall(f"POST /hooks/shop/ HTTP/1.1\r\n{fields}\r\n{{}}".encode())
        answer = sender.recv(65536)
    with closing(socket.create_connection(("127.0.0.1", web.port), timeout=PATIENCE)) as reader:
        reader.sendall("GET /admin/login/ HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Id: ä-1\r\n\r\n".encode())
        assert status_of(reader) == 200

    assert answer.split()[1] == b"400"
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["field"] == "x-id"
    assert web.query("SELECT 1 FROM triggers_event") == []

    other = {**signed_headers(b"{}"), "CF-IPCity": "S\u00e3o Paulo"}
    fields = "".join(f"{name}: {value}\r\n" for name, value in other.items())
    with closing(socket.create_connection(("127.0.0.1", web.port), timeout=PATIENCE)) as sender:
        sender.sendall(
            f"POST /hooks/shop/ HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n{fields}\r\n{{}}".encode()
        )
        assert status_of(sender) == 202
    eventually(lambda: [refused["status"] for refused in refusals_of(web)] == [400])


@pytest.mark.chaos
def test_requests_whose_senders_have_gone_are_not_worked_on(new_web: Stack) -> None:
    web = new_web
    process = web.processes[0]
    with no_source_can_be_read(web):
        with unfinished(web, PLACES + 40, length=1):
            eventually(lambda: deliveries_that_wait(web) == PLACES)
        eventually(lambda: clients_of(process) == 0)

    assert web.request("POST", "/hooks/shop/", body=b"{}", headers=signed_headers(b"{}")).status == 202
    eventually(lambda: process.output().count("hook.rejected") >= PLACES)
    assert web.request("POST", "/hooks/shop/", body=b"{}", headers=signed_headers(b"{}")).status == 200
    assert process.output().count("hook.rejected") == PLACES


def test_few_requests_wait_for_a_thread_and_the_process_answers_that_it_is_alive(web: Stack) -> None:
    """While the database hangs, all threads wait for it."""
    above = 10
    with (
        no_source_can_be_read(web),
        unfinished(web, PLACES * (1 + WAITING) + above, length=1) as senders,
        selectors.DefaultSelector() as selector,
    ):
        for sender in senders:
            selector.register(sender, selectors.EVENT_READ)
        # A request of an earlier test may still hold a place.
        eventually(lambda: len(selector.select(0)) >= above)
        answers = [sender.recv(65536) for sender in senders if sender in {key.fileobj for key, _ in selector.select(0)}]
        assert {answer.split()[1] for answer in answers} == {b"503"}
        assert all(b"retry-after: 5" in answer.lower() for answer in answers)

        live = web.request("GET", "/health/live")
        assert (live.status, live.json()) == (200, {"status": "ok"})
        assert "no-store" in live.headers["cache-control"]
        assert web.request("HEAD", "/health/live").status == 200
        assert web.request("POST", "/health/live", body=b"{}").status == 405

    assert web.request("POST", "/hooks/shop/", body=b"{}", headers=signed_headers(b"{}", id_="room")).status == 202


def test_nothing_of_the_environment_is_a_header(web: Stack) -> None:
    body = b"{}"
    web.request("POST", "/hooks/shop/", body=body, headers=signed_headers(body, id_="of a sender"))

    # The id that the sender gives counts, also under a name that the environment has.
    [event] = web.query("SELECT headers FROM triggers_event WHERE ce_id = 'of a sender'")
    assert "pr0xy" not in json.dumps(event["headers"])


def test_a_field_with_an_underscore_is_no_other_field(web: Stack) -> None:
    """What a proxy sets, or a signature covers, is not overridden by a name that only looks the same to Django."""
    body = b"{}"
    web.request(
        "POST",
        "/hooks/shop/",
        body=body,
        headers={**signed_headers(body, id_="plain"), "X_Id": "other", "X_Extra": "1"},
    )

    [event] = web.query("SELECT headers FROM triggers_event WHERE ce_id = 'plain'")
    assert "x-extra" not in event["headers"]


def test_addresses_and_repeated_fields_come_through(web: Stack) -> None:
    body = b"{}"
    fields = "".join(f"{name}: {value}\r\n" for name, value in signed_headers(body, id_="escaped").items())
    head = f"POST /hooks/sh%6fp/?a=%20 HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n{fields}X-Two: a\r\nX-Two: b\r\n\r\n"
    with closing(socket.create_connection(("127.0.0.1", web.port), timeout=20)) as sender:
        sender.sendall(head.encode() + body)
        assert status_of(sender) == 202

    assert web.query("SELECT headers FROM triggers_event WHERE ce_id = 'escaped'")[0]["headers"]["x-two"] == "a,b"
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
