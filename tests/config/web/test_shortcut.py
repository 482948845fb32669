"""The shortcut of plain deliveries answers as Django's view does, byte by byte, and takes no others; whether each is recorded alone or
those that come together in one transaction.

A cookie, which concerns no source, sends a delivery the way of all requests."""

import json
import re
import socket
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from django.utils import timezone
from pytest_django import Settings

from config.web.shortcut import KNOWN, Shortcut
from tests.support.hooks import SECRET, add_secret, make_source, signed_headers
from tests.support.stack import PATIENCE, Stack, StackMaker, eventually
from triggers.models import Source
from triggers.sources.webhooks.scheme import Sample, Scheme, schemes

ENV = {"WAKEFUL_PROXIES": "1", "WAKEFUL_PROXY_NETWORKS": "127.0.0.0/8", "WAKEFUL_MAX_BODY": "2000"}
SITE = "https://wakeful.example.com"
SETTINGS: dict[str, dict[str, Any]] = {"none": {"unverified": True}}
COOKIE = ("Cookie", "a=b")


@dataclass(frozen=True)
class Request:
    """As it is written on the wire; {id} stands for an id of its own."""

    path: str = "/hooks/shop/"
    body: bytes = b"{}"
    fields: tuple[tuple[str, str], ...] = ()
    method: str = "POST"
    host: str = "127.0.0.1"
    length: str | None = None

    def wire(self) -> bytes:
        length = str(len(self.body)) if self.length is None else self.length
        fields = [("Host", self.host), *self.fields, *([("Content-Length", length)] if length else [])]
        head = "".join(f"{name}: {value}\r\n" for name, value in fields)
        return f"{self.method} {self.path} HTTP/1.1\r\n{head}Connection: close\r\n\r\n".encode() + self.body


def signed(
    body: bytes = b"{}", *, secret: str = SECRET, id_: str = "{id}", path: str = "/hooks/shop/", **more: str
) -> Request:
    named = {name.replace("_", "-"): value for name, value in more.items()}
    return Request(path, body, tuple({**signed_headers(body, secret, id_), **named}.items()))


def answer_of(web: Stack, request: Request) -> bytes:
    with closing(socket.create_connection(("127.0.0.1", web.port), timeout=PATIENCE)) as sender:
        sender.sendall(request.wire())
        answer = b""
        while part := sender.recv(65536):
            answer += part
    return answer


_ids = iter(range(10**6))


def both_ways(web: Stack, request: Request) -> tuple[bytes, bytes]:
    """The answers to the request on the shortcut and on the way of all requests, without what differs from one to the next."""
    found = []
    for more in ((), (COOKIE,)):
        id_ = f"{next(_ids):06}"
        fields = tuple((name, value.replace("{id}", id_)) for name, value in request.fields)
        answer = answer_of(web, replace(request, fields=(*fields, *more)))
        answer = re.sub(rb"[0-9a-f]{8}-[0-9a-f-]{27}", b"<id>", answer)
        found.append(re.sub(rb"(?im)^date: .*\r\n", b"", answer))
    return found[0], found[1]


def start_web(stack: Stack, **env: str) -> Stack:
    with stack.orm():
        make_source()
        make_source("off", enabled=False)
        make_source("open", "none", secret=None, settings={"unverified": True, "type_header": "X-Type"})
        make_source("wrong", settings={"header": 1})
        make_source("near", limits={"networks": "127.0.0.1"})
        make_source("far", limits={"networks": "192.0.2.7"})
        make_source("small", limits={"max_body": 2})
        make_source("slow", limits={"per_minute": 1})
        make_source("chat", "slack")
        make_source("sms", "twilio")
        make_source("bus", "cloudevents")
        for kind in SAMPLED:
            make_source(f"of-{kind}", kind, secret=None, settings=SETTINGS.get(kind, {}))
            if secret := SECRETS[kind]:
                add_secret(Source.objects.get(slug=f"of-{kind}"), secret)
    stack.start("web", env={"WAKEFUL_URL": SITE, **ENV, **env})
    # The first request finds out that the database has all migrations.
    assert answer_of(stack, signed(id_="the first of all")).split()[1] == b"202"
    return stack


SAMPLED = [
    name
    for name, scheme in schemes().items()
    if name not in ("pubsub", "sns", "ping") and scheme.sample(scheme.clean_settings(SETTINGS.get(name, {})))
]
SECRETS = {
    name: schemes()[name].clean_secret(schemes()[name].new_secret()) if schemes()[name].needs_secret else ""
    for name in SAMPLED
}


def sample_of(scheme: Scheme[Any], secret: str) -> Request:
    cleaned = scheme.clean_settings(SETTINGS.get(scheme.name, {}))
    sample = scheme.sample(cleaned)
    assert sample
    path = f"/hooks/of-{scheme.name}/"
    sent: Sample = scheme.signed(replace(sample, url=SITE + path), secret.encode(), timezone.now(), cleaned)
    fields = tuple((name, value.encode().decode("latin-1")) for name, value in sent.headers.items())
    return Request(path, sent.body, fields, method=sent.method)


@pytest.fixture(scope="module", params=["0", "2"], ids=["each alone", "together"])
def web(make_shared_stack: StackMaker, request: pytest.FixtureRequest) -> Stack:
    return start_web(make_shared_stack(), WAKEFUL_INGEST_SESSIONS=request.param)


SAME: dict[str, tuple[int, Request]] = {
    "an event": (202, signed()),
    "with a query": (202, replace(signed(), path="/hooks/shop/?a=%20&b=\u00e9")),
    "without the last slash": (202, replace(signed(), path="/hooks/shop")),
    "an escaped address": (202, replace(signed(), path="/hooks/sh%6fp/")),
    "a duplicate": (200, signed(id_="the first of all")),
    "a body that is no JSON": (202, signed(b"\xff\x00")),
    "no body": (202, signed(b"")),
    "an unverified event": (202, Request("/hooks/open/")),
    "an unusual Accept": (202, signed(Accept="image/*;q=x")),
    "another host of this site": (202, replace(signed(), host="localhost:8000")),
    "a field twice": (202, replace(signed(), fields=(*signed().fields, ("X-Two", "a"), ("X-Two", "b")))),
    "a field with an underscore": (202, replace(signed(), fields=(*signed().fields, ("X_Id", "o")))),
    "a field that is not ASCII": (202, signed(X_City="S\u00e3o Paulo")),
    "a wrong signature": (401, signed(secret="of a stranger")),
    "no signature": (401, Request()),
    "an id that is not ASCII": (400, signed(id_="\u00e4")),
    "a signature that is not ASCII": (400, replace(signed(), fields=(("X-Signature", "\u00e4"), ("X-Id", "a")))),
    "a reserved type": (400, Request("/hooks/open/", fields=(("X-Type", "run.signal"),))),
    "no such source": (404, Request("/hooks/nowhere/")),
    "no such source, in another script": (404, Request("/hooks/%C3%A4/")),
    "a disabled source": (404, signed(path="/hooks/off/")),
    "a built-in source": (404, Request("/hooks/manual/")),
    "a page below": (404, Request("/hooks/shop/more/")),
    "a line's end in the address": (404, Request("/hooks/shop%0A%0A")),
    "wrong settings": (503, signed(path="/hooks/wrong/")),
    "an allowed address": (202, signed(path="/hooks/near/")),
    "another address": (403, signed(path="/hooks/far/")),
    "an allowed address, forwarded": (202, signed(path="/hooks/far/", X_Forwarded_For="203.0.113.9, 192.0.2.7")),
    "a forwarded address that is forged": (403, signed(path="/hooks/far/", X_Forwarded_For="192.0.2.7, 203.0.113.9")),
    "a forwarded address that is none": (403, signed(path="/hooks/near/", X_Forwarded_For="next door")),
    "too large for the source": (413, signed(b'"12"', path="/hooks/small/")),
    "too large": (413, signed(b'"' + b"x" * 2000 + b'"')),
    "a long number of its length": (413, replace(signed(), length="0000000000000002")),
    "no Content-Length": (411, replace(signed(b""), length="")),
    "chunked": (411, replace(signed(b"2\r\n{}\r\n0\r\n\r\n"), length="", fields=(*signed().fields, ("Transfer-Encoding", "chunked")))),
    "GET": (405, Request(method="GET", body=b"")),
    "HEAD": (405, Request(method="HEAD", body=b"")),
    "PUT": (405, replace(signed(), method="PUT")),
    "DELETE": (405, replace(signed(), method="DELETE")),
    "OPTIONS": (405, Request(method="OPTIONS", body=b"")),
    "a handshake": (200, Request("/hooks/bus/", b"", (("WebHook-Request-Origin", "a.example.com"),), method="OPTIONS")),
    "another site": (400, replace(signed(), host="evil.example.com")),
    "a host that is none": (400, replace(signed(), host="a b")),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_both_ways_answer_alike(name: str, web: Stack) -> None:
    status, request = SAME[name]

    directly, by_django = both_ways(web, request)

    assert directly == by_django
    assert int(directly.split()[1]) == status


@pytest.mark.parametrize("kind", SAMPLED)
def test_both_ways_answer_a_sender_of_each_kind_alike(kind: str, web: Stack) -> None:
    scheme, secret = schemes()[kind], SECRETS[kind]
    for text in (secret, scheme.clean_secret(scheme.new_secret()) if scheme.needs_secret else ""):
        answers = []
        for more in ((), (COOKIE,)):
            sample = sample_of(scheme, text)
            answer = answer_of(web, replace(sample, fields=(*sample.fields, *more)))
            answers.append(re.sub(rb"[0-9a-f]{8}-[0-9a-f-]{27}|(?im:^date: .*\r\n)", b"", answer))

        assert answers[0] == answers[1]
        assert answers[0].split()[1] in ((b"200", b"202") if text == secret else (b"401",))


def test_a_challenge_is_answered_alike(web: Stack) -> None:
    scheme = schemes()["slack"]
    body = json.dumps({"type": "url_verification", "challenge": "c-1"}).encode()
    fields = scheme.sign(Sample(body=body, headers={}), SECRET.encode(), timezone.now(), scheme.clean_settings({}))

    directly, by_django = both_ways(web, Request("/hooks/chat/", body, tuple(fields.items())))

    assert directly == by_django
    assert directly.endswith(b"\r\n\r\nc-1")


def test_both_ways_count_the_deliveries_of_a_minute(web: Stack) -> None:
    assert answer_of(web, signed(path="/hooks/slow/", id_="a")).split()[1] == b"202"

    directly, by_django = both_ways(web, signed(path="/hooks/slow/"))

    assert [re.sub(rb"(?i)(retry-after: )\d+", rb"\1", one) for one in (directly, by_django)] == [
        re.sub(rb"(?i)(retry-after: )\d+", rb"\1", by_django)
    ] * 2
    assert directly.split()[1] == b"503"


def test_both_ways_record_count_and_log_alike(stack: Stack) -> None:
    web = start_web(stack)
    both_ways(web, signed(b'{"a": 1}', X_Forwarded_For="192.0.2.7", User_Agent="a sender", X_Token="hush"))
    both_ways(web, signed(secret="of a stranger", X_Forwarded_For="192.0.2.7"))

    first, second = web.query(
        "SELECT ce_source, type, subject, data, body, body_sha256, depth, headers - 'cookie' - 'x-id' AS headers"
        " FROM triggers_event WHERE ce_id LIKE '00%%' ORDER BY seq"
    )
    assert first == second
    assert first["headers"]["x-token"] == "[redacted]"
    assert [one["count"] for one in web.query("SELECT count FROM triggers_refuseddelivery")] == [2]
    eventually(lambda: web.processes[0].output().count("hook.rejected") == 2)
    lines = [line for line in web.processes[0].output().splitlines() if "hook.rejected" in line]
    assert len({re.sub(r"^\S+ ", "", line) for line in lines}) == 1
    assert "192.0.2.7" in lines[0]


# --- Behind https ---


def test_behind_https_both_ways_answer_alike(stack: Stack) -> None:
    web = start_secure(stack)
    safe = signed(X_Forwarded_Proto="https", X_Forwarded_For="192.0.2.7")

    for request, status in ((safe, b"202"), (signed(X_Forwarded_For="192.0.2.7"), b"301")):
        directly, by_django = both_ways(web, request)
        assert directly == by_django
        assert directly.split()[1] == status
    assert b"strict-transport-security: max-age=31536000" in both_ways(web, safe)[0].lower()


def start_secure(stack: Stack) -> Stack:
    with stack.orm():
        make_source()
    stack.start("web", env={"WAKEFUL_HTTPS": "1", "WAKEFUL_PROXY_NETWORKS": "127.0.0.0/8"})
    answer_of(stack, signed(id_="the first of all", X_Forwarded_Proto="https"))
    return stack


# --- Changes from elsewhere, between two deliveries over one connection's process ---


def status(web: Stack, request: Request, *more: tuple[str, str]) -> int:
    return int(answer_of(web, replace(request, fields=(*request.fields, *more))).split()[1])


@pytest.mark.parametrize("way", [(), (COOKIE,)], ids=["directly", "by Django"])
def test_what_changes_elsewhere_holds_for_the_very_next_delivery(way: tuple[tuple[str, str], ...], web: Stack) -> None:
    slug = f"changing-{len(way)}"
    path = f"/hooks/{slug}/"
    with web.orm():
        source = make_source(slug)
        first = source.secrets.get().pk
    assert status(web, signed(id_="1", path=path), *way) == 202

    changes = "UPDATE triggers_source SET {} WHERE slug = %s RETURNING 1"
    web.query(changes.format("enabled = false"), slug)
    assert status(web, signed(id_="2", path=path), *way) == 404
    web.query(changes.format("enabled = true"), slug)
    assert status(web, signed(id_="2", path=path), *way) == 202
    with web.orm():
        add_secret(source, "another")
    assert status(web, signed(id_="3", path=path, secret="another"), *way) == 202
    web.query("DELETE FROM triggers_secret WHERE id = %s RETURNING 1", first)
    assert status(web, signed(id_="4", path=path), *way) == 401
    assert status(web, signed(id_="1", path=path), *way) == 401
    assert status(web, signed(id_="4", path=path, secret="another"), *way) == 202
    web.query(changes.format("""limits = '{"max_body": 1}'"""), slug)
    assert status(web, signed(id_="5", path=path, secret="another"), *way) == 413
    web.query(changes.format("limits = '{}'"), slug)
    assert status(web, signed(id_="5", path=path, secret="another"), *way) == 202


def test_a_revocation_holds_from_its_commit_on(web: Stack) -> None:
    with web.orm():
        source = make_source("revoked")
    assert status(web, signed(id_="1", path="/hooks/revoked/")) == 202

    with psycopg.connect(web.database_url) as revoking:
        revoking.execute("DELETE FROM triggers_secret WHERE source_id = %s", [source.pk])
        assert status(web, signed(id_="2", path="/hooks/revoked/")) == 202  # not committed
    assert status(web, signed(id_="3", path="/hooks/revoked/")) == 401
    assert web.query("SELECT count(*) AS n FROM triggers_event WHERE source_id = %s", source.pk) == [{"n": 2}]


def test_no_delivery_that_begins_after_its_secret_was_revoked_is_let_in(web: Stack) -> None:
    """Whatever is delivered at the same time, with the same secret, to the same process."""
    with web.orm():
        source = make_source("hammered")
    over, numbers = threading.Event(), count()
    answers: list[tuple[float, float, int]] = []
    revoked: list[tuple[float, float]] = []

    def deliver() -> None:
        while not over.is_set():
            began = time.monotonic()
            found = status(web, signed(id_=f"h-{next(numbers)}", path="/hooks/hammered/"))
            answers.append((began, time.monotonic(), found))

    with ThreadPoolExecutor(4) as pool:
        senders = [pool.submit(deliver) for _ in range(4)]
        try:
            for _ in range(20):
                [sealed] = web.query("DELETE FROM triggers_secret WHERE source_id = %s RETURNING ciphertext", source.pk)
                since = time.monotonic()
                time.sleep(0.05)
                revoked.append((since, time.monotonic()))
                add = "INSERT INTO triggers_secret (source_id, ciphertext) VALUES (%s, %s) RETURNING 1"
                web.query(add, source.pk, sealed["ciphertext"])
                assert status(web, signed(id_=f"h-{next(numbers)}", path="/hooks/hammered/")) == 202
        finally:
            over.set()
        for sender in senders:
            sender.result()

    meanwhile = {
        found for since, until in revoked for began, ended, found in answers if since <= began and ended <= until
    }
    assert meanwhile <= {401}
    events = web.query("SELECT count(*)::int AS n FROM triggers_event WHERE source_id = %s", source.pk)[0]["n"]
    assert events == len(revoked) + sum(found == 202 for *_, found in answers)


# --- The database ---


def test_sessions_that_were_ended_are_replaced_without_a_refusal(web: Stack) -> None:
    """After a restart of PostgreSQL some senders never retry."""
    for _ in range(3):
        assert {status(web, signed(id_=f"before-{number}-{_}")) for number in range(20)} == {202}
        web.query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        assert {status(web, signed(id_=f"after-{number}-{_}")) for number in range(40)} == {202}


@pytest.mark.parametrize("sessions", ["0", pytest.param("2", marks=pytest.mark.chaos)])
def test_without_the_database_both_ways_answer_alike_and_after_it_as_before(
    sessions: str, make_stack: StackMaker
) -> None:
    web = start_web(make_stack(own_servers=True), WAKEFUL_INGEST_SESSIONS=sessions)
    postgres = web.servers.postgres
    assert postgres
    postgres.stop()
    directly, by_django = both_ways(web, signed())
    assert directly == by_django
    assert directly.split()[1] == b"503"
    assert b"retry-after: 5" in directly.lower()

    postgres.start()
    eventually(lambda: status(web, signed(id_="back")) in (200, 202))
    assert {status(web, signed(id_=f"back-{number}")) for number in range(20)} == {202}


# --- What takes the shortcut ---


@dataclass
class Headers:
    """Granian's."""

    fields: Mapping[str, str | None]

    def items(self) -> list[tuple[str, str]]:
        return [(name, value) for name, value in self.fields.items() if value is not None]

    def keys(self) -> list[str]:
        return list(self.fields)

    def get(self, name: str) -> str | None:
        return self.fields.get(name)


@dataclass
class Scope:
    """Granian's."""

    fields: Mapping[str, str | None] = field(default_factory=dict)
    method: str = "POST"
    path: str = "/hooks/shop/"
    query_string: str = ""
    scheme: str = "http"
    server: str = "127.0.0.1:8000"
    client: str = "127.0.0.1:50000"
    http_version: str = "1.1"

    @property
    def headers(self) -> Headers:
        return Headers(self.fields)


PLAIN = {"host": "127.0.0.1", "content-length": "2"}


def answer_to(scope: Scope, *, is_open: bool = True) -> Any:
    return Shortcut(lambda: is_open).take(scope, b"{}", uuid4())  # type: ignore[arg-type]


def plain(**more: str) -> dict[str, str | None]:
    named = {name.lower(): value for name, value in signed_headers(b"{}").items()}
    return {**PLAIN, **named, **{name.replace("_", "-"): value for name, value in more.items()}}


@pytest.mark.django_db(transaction=True)  # as the connection is looked after between requests
def test_a_plain_delivery_takes_the_shortcut() -> None:
    make_source()

    status, headers, content = answer_to(Scope(plain()))

    assert (status, json.loads(content)["duplicate"]) == (202, False)
    assert ("Content-Length", str(len(content))) in headers


@pytest.mark.django_db
@pytest.mark.parametrize(
    "scope",
    [
        Scope(plain(), method="PUT"),
        Scope(plain(), path="/hooks/shop/more"),
        Scope(plain(), path="/hooks/sh\u00f6p/"),
        Scope(plain(), path="/hooks/shop/\n"),
        Scope(plain(), path="/ping/shop/"),
        Scope(plain(cookie="a=b")),
        Scope(plain(transfer_encoding="chunked")),
        Scope(plain(content_length="")),
        Scope(plain(content_length="2,2")),
        Scope(plain(content_length="1" * 13)),
        Scope(plain(host="evil.example.com")),
        Scope({**plain(), "host": None}),
    ],
)
def test_any_other_request_goes_the_way_of_all(scope: Scope) -> None:
    make_source()

    assert answer_to(scope) is None


@pytest.mark.django_db
def test_before_migrate_nothing_takes_it() -> None:
    make_source()

    assert answer_to(Scope(plain()), is_open=False) is None


@pytest.mark.django_db
def test_a_middleware_that_it_does_not_know_closes_it(settings: Settings) -> None:
    make_source()
    assert set(settings.MIDDLEWARE) == KNOWN
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "django.middleware.http.ConditionalGetMiddleware"]

    assert answer_to(Scope(plain())) is None


@pytest.mark.django_db
def test_agents_that_are_not_wanted_and_another_address_of_the_site_close_it(settings: Settings) -> None:
    make_source()
    settings.DISALLOWED_USER_AGENTS = [re.compile("bad")]
    assert answer_to(Scope(plain())) is None
    settings.DISALLOWED_USER_AGENTS = []
    settings.FORCE_SCRIPT_NAME = "/below"
    assert answer_to(Scope(plain())) is None
    settings.FORCE_SCRIPT_NAME = None
    settings.PREPEND_WWW = True
    assert answer_to(Scope(plain(host="localhost"))) is None


@pytest.mark.django_db(transaction=True)  # as the connection is looked after between requests
def test_a_secure_site_is_asked_for_over_https_alone(settings: Settings) -> None:
    make_source()
    settings.SECURE_SSL_REDIRECT, settings.SECURE_HSTS_SECONDS = True, 60
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")

    assert answer_to(Scope(plain())) is None
    assert answer_to(Scope(plain(x_forwarded_proto="http"))) is None
    _, headers, _ = answer_to(Scope(plain(x_forwarded_proto="https")))
    assert ("Strict-Transport-Security", "max-age=60") in headers
