"""Nothing but http and https is spoken to the outside, and no message quotes the address."""

from base64 import b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from config.checks import outgoing_urls
from runs.network import outgoing
from runs.processes.dead_man import ping
from tests.support.answering import answering

SECRET = "T0/SECRET-PATH"


@pytest.fixture
def elsewhere() -> Iterator[tuple[str, dict[str, Any]]]:
    """A server that redirects, and the requests that it got."""
    state: dict[str, Any] = {"location": "", "status": 302, "asked": []}

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            state["asked"].append((self.command, self.path))
            state["authorization"] = self.headers.get("Authorization", "")
            self.send_response(state["status"] if self.path.startswith(f"/{SECRET}") else 204)
            self.send_header("Location", state["location"])
            self.end_headers()

        do_GET = do_POST = _answer

        def log_message(self, *_: Any) -> None: ...

    with answering(HTTPServer(("127.0.0.1", 0), Handler)) as address:
        yield f"{address}/{SECRET}", state


@pytest.mark.parametrize(
    ("url", "wrong"),
    [
        (f"hooks.example.org/{SECRET}", "http"),
        (f"file:///etc/{SECRET}", "http"),
        (f"ftp://example.org/{SECRET}", "http"),
        (f"https:///{SECRET}", "host"),
        (f"https://example.org/{SECRET} x", "space"),
        (f"https://example.org/{SECRET}\r\nX: y", "control"),
        (f"https://[::1/{SECRET}", "not a URL"),
        (f"https://example.org:port/{SECRET}", "not a URL"),
        (f"https://example.org/{SECRET}/ü", "%XX"),
    ],
)
def test_an_address_that_cannot_work_is_refused_at_the_start_and_quoted_nowhere(
    url: str, wrong: str, settings: Any, capsys: Any, caplog: Any
) -> None:
    settings.WAKEFUL_ALARM_URL = settings.WAKEFUL_HEARTBEAT_URL = url

    found = list(outgoing_urls(None))
    ping(url)
    with pytest.raises(outgoing.NotTaken) as refused:
        outgoing.send(url, timeout=1)

    assert [error.id for error in found] == ["wakeful.E030"] * 2
    texts = [str(found), str(refused.value), capsys.readouterr().out, capsys.readouterr().err, caplog.text]
    assert wrong in str(found[0].msg)
    assert not any(SECRET in text for text in texts)


def test_valid_addresses_pass_the_check(settings: Any) -> None:
    settings.WAKEFUL_ALARM_URL = "https://user:word@[::1]:8443/a/b?c=d"
    settings.WAKEFUL_HEARTBEAT_URL = ""

    assert not list(outgoing_urls(None))


@pytest.mark.parametrize("location", ["file:///etc/hostname", "ftp://127.0.0.1/x"])
def test_a_redirect_leads_to_no_other_scheme(location: str, elsewhere: Any) -> None:
    url, state = elsewhere
    state["location"] = location

    with pytest.raises(outgoing.NotTaken, match="302"):
        outgoing.send(url, timeout=60)


def test_a_ping_follows_a_redirect_and_an_alarm_that_would_lose_its_text_does_not(elsewhere: Any) -> None:
    url, state = elsewhere
    state["location"] = url.replace(f"/{SECRET}", "/there")

    outgoing.send(url, timeout=60)
    assert state["asked"] == [("GET", f"/{SECRET}"), ("GET", "/there")]

    with pytest.raises(outgoing.NotTaken, match="302"):
        outgoing.send(url, body=b"{}", timeout=60)
    assert state["asked"][2:] == [("POST", f"/{SECRET}")]


def test_a_user_and_a_password_in_the_address_are_sent_as_such(elsewhere: Any) -> None:
    url, state = elsewhere
    state["status"] = 204

    outgoing.send(url.replace("//", "//user:word@"), body=b"{}", timeout=60)

    assert state["authorization"] == f"Basic {b64encode(b'user:word').decode()}"


def test_requests_go_through_the_proxy_of_the_environment(elsewhere: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    url, state = elsewhere
    monkeypatch.setenv("http_proxy", url.removesuffix(f"/{SECRET}"))
    monkeypatch.setenv("no_proxy", "")

    outgoing.send(f"http://monitor.example/{SECRET}", timeout=60)

    assert state["asked"] == [("GET", f"http://monitor.example/{SECRET}")]


@pytest.mark.parametrize("status", [404, 500])
def test_a_refusal_shows_its_status_and_no_address(status: int, elsewhere: Any) -> None:
    url, state = elsewhere
    state["status"] = status

    with pytest.raises(outgoing.NotTaken) as refused:
        outgoing.send(url, body=b"{}", timeout=60)

    assert str(refused.value) == f"it answered {status}"


def test_an_unreachable_receiver_is_reported_without_its_address() -> None:
    with pytest.raises(outgoing.NotTaken) as refused:
        outgoing.send(f"http://127.0.0.1:1/{SECRET}", timeout=60)

    assert str(refused.value) == "ConnectionRefusedError: Connection refused"


def test_the_ping_survives_every_error(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError(SECRET)

    monkeypatch.setattr(outgoing, "send", fail)

    ping(f"https://example.org/{SECRET}")

    assert "RuntimeError" in caplog.text and SECRET not in caplog.text
