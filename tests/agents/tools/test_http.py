"""The HTTP tool: it goes to hosts that its author allows, at public addresses, and to no other, on every redirect."""

import asyncio
import gzip
import json
import re
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2 as httpx
import pytest
from pydantic_ai import Agent as LlmAgent
from pydantic_ai import ModelRetry
from pydantic_ai.messages import ToolReturnPart

from agents.agent import Agent
from agents.exceptions import Permanent
from agents.guards.addresses import Refused, is_public
from agents.guards.storable import storable
from agents.testing import run_agent
from agents.tools.http import Limits, http_tool, redirected
from tests.support.answering import answering
from tests.support.llm import Turns


class Site:
    """A server on this machine that answers by path."""

    def __init__(self) -> None:
        site = self
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.redirects: dict[str, str] = {}
        self.answers: dict[str, tuple[dict[str, str], bytes]] = {}  # headers and body

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.asked.append(
                    (self.command, self.path, {key.lower(): value for key, value in self.headers.items()})
                )
                if self.path in site.redirects:
                    self.send_response(302)
                    self.send_header("Location", site.redirects[self.path])
                    self.end_headers()
                    return
                headers, body = site.answers.get(self.path, ({}, f"hello from {self.path}".encode()))
                self.send_response(200)
                for name, value in {"Content-Type": "text/plain; charset=utf-8", **headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.path == "/slow":
                    threading.Event().wait(3)
                self.wfile.write(body)

            do_POST = do_GET

            def log_message(self, *_: Any) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_port

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    with answering(site.server):
        yield site


def call(tool: Any, url: str, method: str = "GET", body: str = "") -> dict[str, Any]:
    answer: dict[str, Any] = asyncio.run(tool.function(url, method, body))
    return answer


def own(site: Site, *more: str, **options: Any) -> Any:
    """A tool that may call this site."""
    allow = [f"127.0.0.1:{site.port}", f"localhost:{site.port}", *more]
    return http_tool(allow, **{"allow_networks": ["127.0.0.0/8", "::1/128"], **options})


def test_the_tool_returns_the_answer_of_an_allowed_host(site: Site) -> None:
    answer = call(own(site, headers={"X-Key": "k"}), site.url("/page"))

    assert (answer["status"], answer["body"]) == (200, "hello from /page")
    assert site.asked[0][2]["x-key"] == "k"
    assert site.asked[0][2]["host"] == f"127.0.0.1:{site.port}"


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "localhost",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "127.1",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "0.0.0.0",
    ],
)
def test_an_address_inside_is_refused_however_it_is_written(site: Site, host: str) -> None:
    with pytest.raises(ModelRetry, match="not a public one|cannot be found|not allowed|no valid address"):
        call(http_tool([f"{host}:{site.port}"]), site.url("/secret", host))
    assert not site.asked


@pytest.mark.parametrize(
    "address",
    [
        "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.100.100.200", "127.0.0.1", "0.0.0.0", "224.0.0.1",
        "255.255.255.255", "168.63.129.16", "192.0.0.192", "::1", "::", "fe80::1", "fe80::1%eth0", "fd00:ec2::254", "ff02::1",
        "::ffff:10.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2002:7f00:1::", "2001:0:7f00:1::", "fec0::1", "::7f00:1",
        "::a00:1", "::ffff:0:7f00:1",
    ],
)  # fmt: skip
def test_private_link_local_and_metadata_addresses_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.216.34", "2606:4700:4700::1111", "::ffff:1.1.1.1"])
def test_public_addresses_are_recognised(address: str) -> None:
    assert is_public(address)


def test_every_redirect_is_checked(site: Site) -> None:
    site.redirects = {
        "/to-page": "/page",
        "/to-other": "http://other.example/",
        "/to-metadata": "http://169.254.169.254/latest/",
        "/to-file": "file:///etc/passwd",
        "/round": "/round",
    }
    tools = {"/to-metadata": own(site, "169.254.169.254")}
    assert call(own(site), site.url("/to-page"))["body"] == "hello from /page"
    for path, message in (
        ("/to-other", "its host is not allowed here"),
        ("/to-metadata", "169.254.169.254, which is not a public one"),
        ("/to-file", "only http and https"),
        ("/round", "more than 3 redirects"),
    ):
        answer = call(tools.get(path, own(site)), site.url(path))
        assert (answer["status"], "body" in answer) == (302, False)
        assert message in answer["error"]


def test_a_name_that_means_a_public_and_a_private_address_is_refused(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    lookups: list[str] = []

    def lookup(host: str, port: int, *arguments: Any, **named: Any) -> Any:
        lookups.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in ("93.184.216.34", "127.0.0.1")]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)

    with pytest.raises(ModelRetry, match="127.0.0.1, which is not a public one"):
        call(http_tool([f"mixed.example:{site.port}"]), site.url("/secret", "mixed.example"))
    assert (lookups, site.asked) == (["mixed.example"], [])


def test_a_name_is_looked_up_once_and_what_was_checked_is_connected_to(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter(["127.0.0.1", "169.254.169.254"])

    def lookup(host: str, port: int, *arguments: Any, **named: Any) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(answers) if host == "turns.example" else host, port))]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)

    answer = call(own(site, f"turns.example:{site.port}"), site.url("/page", "turns.example"))
    assert answer["body"] == "hello from /page"
    assert site.asked[0][2]["host"] == f"turns.example:{site.port}"
    assert next(answers) == "169.254.169.254"


def test_a_redirect_to_a_name_with_a_private_address_is_refused(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def lookup(host: str, port: int, *arguments: Any, **named: Any) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1" if host == "127.0.0.1" else "10.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    site.redirects = {"/inside": site.url("/secret", "inside.example")}

    answer = call(own(site, f"inside.example:{site.port}"), site.url("/inside"))

    assert "10.0.0.1, which is not a public one" in answer["error"]


@pytest.mark.parametrize(
    "location",
    [
        "data:call tool pay",
        "http://pay.example/call",
        "http://call:pay@127.0.0.1/",
        "http://pay:call/",
        "http://pay..example.org/call",
        f"http://pay{'y' * 70}.example.org/call",
        "http://pay.example.org:99999/call",
        "http://[pay",
        "/pay" + "call" * 20_000,
    ],
    ids=range(9),
)
def test_the_error_for_a_refused_redirect_quotes_no_address(site: Site, location: str) -> None:
    site.redirects = {"/": location}

    answer = call(own(site, "*.example.org"), site.url("/"))

    assert answer["error"].startswith("its redirect is refused: ")
    assert not re.search("pay|call", json.dumps(answer))


def test_a_redirect_from_https_to_http_is_refused(site: Site) -> None:
    limits = Limits(
        allow=("a.example.org",),
        methods=frozenset({"GET"}),
        max_bytes=1,
        seconds=1,
        max_redirects=1,
        headers={},
        inside=(),
    )
    secure, plain = httpx.URL("https://a.example.org/x"), httpx.URL("http://a.example.org/x")

    with pytest.raises(Refused, match="from https to http"):
        redirected(limits, secure, "http://a.example.org/y")
    assert str(redirected(limits, secure, "/y")) == "https://a.example.org/y"
    assert str(redirected(limits, plain, "https://a.example.org/y")) == "https://a.example.org/y"


def test_a_post_returns_the_redirect_itself_where_its_target_is_refused(site: Site) -> None:
    site.redirects = {"/post": "/page", "/away": "http://other.example/"}

    only_posting, both = own(site, methods=["POST"]), own(site, methods=["GET", "POST"])

    assert call(both, site.url("/post"), "POST", "x")["body"] == "hello from /page"
    assert "by GET, which is not allowed" in call(only_posting, site.url("/post"), "POST", "x")["error"]
    assert "its host is not allowed" in call(both, site.url("/away"), "POST", "x")["error"]


def test_long_answers_are_cut_also_unpacked_ones_and_slow_ones_are_given_up(site: Site) -> None:
    tool = own(site, max_bytes=1000, timeout="1s")
    site.answers = {
        "/long": ({}, b"x" * 500_000),
        "/packed": ({"Content-Encoding": "gzip"}, gzip.compress(b"y" * 5_000_000)),
    }

    for path, letter in (("/long", "x"), ("/packed", "y")):
        answer = call(tool, site.url(path))
        assert (answer["body"], answer["cut_after_bytes"]) == (letter * 1000, 1000)
    assert "error" in call(tool, site.url("/slow"))


def test_a_packed_answer_is_unpacked_once(site: Site) -> None:
    page = gzip.compress(b"page")
    site.answers = {
        "/once": ({"Content-Encoding": "gzip"}, page),
        "/twice": ({"Content-Encoding": "gzip, gzip"}, gzip.compress(page)),
        "/other": ({"Content-Encoding": "br"}, page),
        "/broken": ({"Content-Encoding": "gzip"}, b"page"),
    }

    assert call(own(site), site.url("/once"))["body"] == "page"
    assert site.asked[0][2]["accept-encoding"] == "gzip"
    for path in ("/twice", "/other", "/broken"):
        answer = call(own(site), site.url(path))
        assert (answer["status"], "body" in answer, "its content is" in answer["error"]) == (200, False, True)


def test_a_packed_answer_that_unpacks_to_nothing_is_cut(site: Site) -> None:
    endless_name = b"\x1f\x8b\x08\x08\0\0\0\0\0\x03" + b"a" * 1_000_000
    site.answers = {"/": ({"Content-Encoding": "gzip"}, endless_name)}

    answer = call(own(site, max_bytes=20_000), site.url("/"))

    assert (answer["body"], answer["cut_after_bytes"]) == ("", 20_000)


CHARSETS = [
    "bogus",
    "zlib",
    "hex",
    "rot13",
    "undefined",
    "idna",
    "punycode",
    "unicode_escape",
    "utf-7",
    "utf8mb4",
    "a\xffb",
]


@pytest.mark.parametrize("charset", [*CHARSETS, "utf-16-le", ""])
def test_an_answer_in_any_charset_and_with_any_characters_can_be_stored(site: Site, charset: str) -> None:
    body = b"h\xe9llo \\ud800 +2AA- \x00 \xff \x00\xd8x"
    site.answers = {"/": ({"Content-Type": f"text/plain; charset={charset}"}, body)}

    answer = call(own(site), site.url("/"))

    assert answer["status"] == 200
    storable(answer, "the answer")
    assert charset == "utf-16-le" or answer["body"].startswith("h\N{REPLACEMENT CHARACTER}llo")


def test_charsets_of_web_pages_are_read(site: Site) -> None:
    for charset in ("iso-8859-1", "windows-1252", "utf-16le"):
        text = "h\xe9llo"
        site.answers = {"/": ({"Content-Type": f"text/plain; charset={charset}"}, text.encode(charset))}
        assert call(own(site), site.url("/"))["body"] == text


@pytest.mark.parametrize("url", [f"http://a{'a' * 70}.example.org/", "http://a..example.org/", "http://.example.org/"])
def test_a_name_that_cannot_be_looked_up_is_refused(site: Site, url: str) -> None:
    with pytest.raises(ModelRetry, match="cannot be found|no valid address"):
        call(own(site, "*.example.org"), url)


def test_an_argument_with_characters_that_cannot_be_stored_is_sent_or_refused(site: Site) -> None:
    writing = own(site, methods=["POST"])

    assert call(writing, site.url("/x"), "POST", "\ud800")["status"] == 200
    with pytest.raises(ModelRetry):
        call(writing, "http://\ud800.example/", "POST")


@pytest.mark.parametrize(
    "url",
    [
        "ftp://127.0.0.1/", "file:///etc/passwd", "http://user:pass@127.0.0.1/", "http://127.0.0.1.evil.example/", "gopher://x",
        "http://127.0.0.1@evil.example/", "//127.0.0.1/", "", "http://",
    ],
)  # fmt: skip
def test_addresses_of_other_hosts_are_refused(site: Site, url: str) -> None:
    with pytest.raises(ModelRetry):
        call(own(site), url)


def test_hosts_are_allowed_by_name_below_a_name_and_by_port() -> None:
    tool = http_tool(["*.example.org", "api.example.com:8443"])

    for url in (
        "http://example.org/",
        "http://evilexample.org/",
        "https://api.example.com/",
        "https://a.example.org:8080/",
    ):
        with pytest.raises(ModelRetry, match="its host is not allowed here"):
            call(tool, url)


def test_methods_are_those_that_are_named_and_others_than_reading_are_dangerous(site: Site) -> None:
    reading, writing = own(site), own(site, methods=["GET", "POST"])

    assert (reading.metadata or {})["dangerous"] is False
    metadata = writing.metadata or {}
    assert (metadata["effect"], metadata["dangerous"]) == ("at_most_once", True)
    assert call(writing, site.url("/x"), "POST", "{}")["status"] == 200
    with pytest.raises(ModelRetry, match="method POST is not allowed"):
        call(reading, site.url("/x"), "POST", "{}")
    with pytest.raises(Permanent):
        http_tool([])


@pytest.mark.django_db
def test_a_body_that_the_tool_reads_is_fenced_and_taints_the_run(site: Site) -> None:
    script = Turns([("http", {"url": site.url("/page")})], "read")
    llm = LlmAgent(script.model, name="reader", tools=[own(site)])
    seen: list[Any] = []

    def body(run: Any) -> str:
        result = run.llm(llm, "Read it.")
        seen.extend(
            part for message in result.all_messages() for part in message.parts if isinstance(part, ToolReturnPart)
        )
        return str(result.output)

    done = run_agent(Agent(name="x", body=body, durable=True))

    assert done.is_tainted
    [part] = seen
    assert part.content.startswith('<untrusted-data mark="')
    assert json.dumps("hello from /page") in part.content
