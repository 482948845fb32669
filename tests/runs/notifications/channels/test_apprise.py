"""Everything that apprise speaks: what it does not say for certain is unknown."""

import json
from typing import Any

import pytest

from runs.notifications.channels import apprise
from runs.notifications.channels.apprise import CHANNEL
from runs.notifications.channels.channel import NotNow, Refused, Sent, Unknown, fault_of
from tests.runs.notifications.channels.test_mail import message
from tests.support.post_office import HookServer, Manner, taking_hooks

# Apprise imports it on Python 3.11 and 3.12.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")


def address_of(server: HookServer) -> str:
    return f"gotify://127.0.0.1:{server.port}/token?rto=2"


def test_a_service_gets_the_message() -> None:
    with taking_hooks() as server:
        server.manner = "slow"  # 200, as Gotify answers
        outcome = CHANNEL.send(address_of(server), message("Disk full", urgency="high"))

    assert outcome == Sent()
    body = json.loads(server.posted[0].body)
    assert body["title"] == "Disk full"


@pytest.mark.parametrize(
    ("manner", "kind"),
    [("refuse", Refused), ("later", NotNow), ("greylist", NotNow), ("gateway", Unknown), ("cut", Unknown)],
)
def test_the_outcome_is_read_from_the_log_of_apprise(manner: Manner, kind: type) -> None:
    with taking_hooks() as server:
        server.manner = manner
        outcome = CHANNEL.send(address_of(server), message("a"))

    assert isinstance(outcome, kind), outcome


def test_a_service_that_does_not_run_was_not_reached() -> None:
    with taking_hooks() as server:
        server.close()
        outcome = CHANNEL.send(address_of(server), message("a"))

    assert isinstance(outcome, NotNow)


def test_a_service_that_takes_too_long_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apprise, "WHOLE", 0.2)
    with taking_hooks() as server:
        server.manner = "silent"
        outcome = CHANNEL.send(address_of(server), message("a"))

    assert outcome == Unknown(why="no end within 0.2 s")


@pytest.mark.parametrize(
    "address",
    [
        "syslog://",
        "rsyslog://127.0.0.1",
        "json://127.0.0.1/x",
        "forms://127.0.0.1/x",
        "xml://127.0.0.1/x",
        "dbus://",
        "amqp://127.0.0.1/q",
        "bluesky://ada@password",
    ],
)
def test_services_that_write_here_or_post_anything_anywhere_are_refused(address: str) -> None:
    assert "none that notifications go to" in fault_of(address)
    assert isinstance(CHANNEL.send(address, message("a")), Refused)


@pytest.mark.parametrize(
    "option", ["template=/etc/passwd", "keyfile=/etc/passwd", "attach=http://127.0.0.1/", "Template="]
)
def test_an_option_that_opens_a_file_is_refused(option: str) -> None:
    address = f"tgram://123456789:abcdefg_hijklmnop/12315544/?{option}"
    assert "opens a file" in fault_of(address)
    assert fault_of(address.partition("?")[0]) == ""


def test_a_service_at_an_internal_host_is_not_called_unless_it_is_allowed(settings: Any) -> None:
    settings.WAKEFUL_NOTIFY_NETWORKS = []
    with taking_hooks() as server:
        outcomes = [
            CHANNEL.send(f"{scheme}://{host}:{server.port}/token-of-a-service?rto=2", message("a"))
            for scheme in ("apprise", "gotify", "ntfy")
            for host in ("127.0.0.1", "localhost", "[::1]")
        ]
        assert not server.posted

    assert all(isinstance(one, NotNow) for one in outcomes), outcomes
    assert all("public" in one.why for one in outcomes if isinstance(one, NotNow))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1%3A8443", "a.b%40127.0.0.1"])
def test_an_organization_of_zulip_is_no_address_inside(settings: Any, host: str) -> None:
    """Zulip's own hosts have the names of organizations; one with a dot in it is a host of one's own."""
    settings.WAKEFUL_NOTIFY_NETWORKS = []
    outcome = CHANNEL.send(f"zulip://bot@{host}/{'a' * 32}/ops", message("a"))
    assert isinstance(outcome, NotNow)
    assert "public" in outcome.why or "cannot be found" in outcome.why


def test_a_service_that_redirects_is_not_followed() -> None:
    with taking_hooks() as server:
        server.manner = "redirect"
        assert CHANNEL.send(address_of(server), message("a")) == Refused(why="it answered 302")


def test_an_address_that_apprise_does_not_know_is_refused() -> None:
    assert fault_of("nosuchservice://x").startswith("apprise knows no such service")
    assert fault_of("gotify://127.0.0.1/token") == ""


def test_html_of_strangers_is_text_where_a_service_shows_html() -> None:
    with taking_hooks() as server:
        CHANNEL.send(f"{address_of(server)}&format=html", message("<a href='https://evil.example'>Approve</a>"))

    text = json.loads(server.posted[0].body)["message"]
    assert "<a" not in text and "&lt;a" in text
