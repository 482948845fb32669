"""Everything that apprise speaks: what it does not say for certain is unknown."""

import json

import pytest

from runs.notifications.channels import apprise
from runs.notifications.channels.apprise import CHANNEL
from runs.notifications.channels.channel import NotNow, Refused, Sent, Unknown, fault_of
from tests.runs.notifications.channels.test_mail import message
from tests.support.post_office import HookServer, Manner, taking_hooks

# Apprise imports it on Python 3.11 and 3.12.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")


def address_of(server: HookServer) -> str:
    return f"json://127.0.0.1:{server.port}/hook?rto=2"


def test_a_service_gets_the_message() -> None:
    with taking_hooks() as server:
        outcome = CHANNEL.send(address_of(server), message("Disk full", urgency="high"))

    assert outcome == Sent()
    told = json.loads(server.posted[0].body)
    assert (told["title"], told["type"]) == ("Disk full", "warning")


@pytest.mark.parametrize(
    ("manner", "kind"),
    [("refuse", Refused), ("later", NotNow), ("greylist", NotNow), ("gateway", Unknown), ("cut", Unknown)],
)
def test_what_it_logs_says_what_became_of_a_message(manner: Manner, kind: type) -> None:
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


def test_an_address_that_apprise_does_not_know_is_refused() -> None:
    assert fault_of("nosuchservice://x").startswith("apprise knows no such service")
    assert fault_of("json://127.0.0.1/hook") == ""


def test_html_of_strangers_is_text_where_a_service_shows_html() -> None:
    with taking_hooks() as server:
        CHANNEL.send(f"{address_of(server)}&format=html", message("<a href='https://evil.example'>Approve</a>"))

    told = json.loads(server.posted[0].body)["message"]
    assert "<a" not in told and "&lt;a" in told
