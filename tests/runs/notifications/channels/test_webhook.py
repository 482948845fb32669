"""Signed webhooks, verified as receivers do; Slack's; and the inbox."""

import json
import time
from typing import Any

import pytest
from standardwebhooks import Webhook

from runs.network.signing import new_secret
from runs.notifications.channels import webhook
from runs.notifications.channels.channel import NotNow, Refused, Sent, Unknown, channel_of, channels, fault_of
from runs.notifications.channels.webhook import CHANNEL
from tests.runs.notifications.channels.test_mail import message
from tests.support.post_office import taking_hooks


def test_a_receiver_can_verify_what_it_gets() -> None:
    secret = new_secret()
    with taking_hooks() as server:
        outcome = CHANNEL.send(f"{server.url}#{secret}", message("Hello ☂", "again"))

    [posted] = server.posted
    content = Webhook(secret).verify(posted.body, posted.headers)
    assert outcome == Sent()
    assert content["type"] == "wakeful.notification"
    assert [one["text"] for one in content["data"]["notifications"]] == ["Hello ☂", "again"]
    assert posted.headers["webhook-id"] == f"msg_{content['data']['delivery']}"
    assert posted.path == "/hook"  # the secret stays here


def test_without_a_secret_nothing_is_signed() -> None:
    with taking_hooks() as server:
        CHANNEL.send(server.url, message("a"))

    assert "webhook-signature" not in server.posted[0].headers
    assert abs(int(server.posted[0].headers["webhook-timestamp"]) - time.time()) < 60


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::1]", "2130706433", "[::ffff:127.0.0.1]", "169.254.169.254"]
)
@pytest.mark.parametrize("channel", ["", "slack+"])
def test_a_receiver_at_an_internal_host_is_not_called_unless_it_is_allowed(
    settings: Any, host: str, channel: str
) -> None:
    settings.WAKEFUL_NOTIFY_NETWORKS = []
    with taking_hooks() as server:
        address = f"{channel}http://{host}:{server.port}/hook"
        found = channel_of(address)
        assert found
        outcome = found.send(address, message("a"))
        assert not server.posted

    assert isinstance(outcome, NotNow)
    assert outcome.why.endswith("which is not a public one; allow its network in WAKEFUL_NOTIFY_NETWORKS")


def test_the_recipient_of_the_settings_may_be_anywhere(settings: Any) -> None:
    settings.WAKEFUL_NOTIFY_NETWORKS = []
    with taking_hooks() as server:
        settings.WAKEFUL_NOTIFY_TO = server.url
        assert CHANNEL.send(server.url, message("a")) == Sent()
        assert isinstance(CHANNEL.send(f"{server.url}/other", message("a")), NotNow)


def test_an_answer_that_takes_too_long_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "WHOLE", 0.3)
    with taking_hooks() as server:
        server.manner = "silent"
        outcome = CHANNEL.send(server.url, message("a"))

    assert outcome == Unknown(why="handed over, and then: no answer within 0.3 s")


def test_a_host_without_a_name_was_never_reached() -> None:
    outcome = CHANNEL.send("http://no-such-host.invalid/secret-path", message("a"))

    assert isinstance(outcome, NotNow) and "secret-path" not in outcome.why


def test_a_certificate_that_cannot_be_verified_is_not_reached() -> None:
    with taking_hooks() as server:
        outcome = CHANNEL.send(server.url.replace("http:", "https:"), message("a"))

    assert isinstance(outcome, NotNow)


def test_slack_gets_a_text_that_mentions_no_one() -> None:
    with taking_hooks() as server:
        address = f"slack+{server.url}"
        channel = channel_of(address)
        assert channel
        outcome = channel.send(address, message("<!channel> look & see"))

    assert outcome == Sent()
    assert json.loads(server.posted[0].body)["text"].startswith("&lt;!channel&gt; look &amp; see")


def test_markdown_of_strangers_mentions_no_one_and_hides_no_link_at_a_host_that_is_not_slack() -> None:
    with taking_hooks() as server:
        address = f"slack+{server.url}"
        channel = channel_of(address)
        assert channel
        channel.send(address, message("@all [Approve](https://evil.example), ask ada@example.com"))

    text = json.loads(server.posted[0].body)["text"]
    assert "@all" not in text and "](" not in text and "ada@example.com" in text


@pytest.mark.parametrize("manner", ["refuse", "later"])
def test_answers_of_slack_decide_between_refused_and_retry(manner: str) -> None:
    with taking_hooks() as server:
        server.manner = manner  # type: ignore[assignment]
        channel = channel_of(f"slack+{server.url}")
        assert channel
        outcome = channel.send(f"slack+{server.url}", message("a"))

    assert isinstance(outcome, Refused if manner == "refuse" else NotNow)


@pytest.mark.parametrize(
    ("address", "name", "shown"),
    [
        ("mailto:ops@example.com", "mail", "mailto:ops@example.com"),
        ("https://example.com/hook/secret#whsec_x", "webhook", "https://example.com/…"),
        ("http://10.0.0.1:8080/x", "webhook", "http://10.0.0.1:8080/…"),
        ("https://hooks.slack.com/services/T/B/secret", "slack", "slack at hooks.slack.com"),
        ("slack+https://chat.example.com/hooks/secret", "slack", "slack at chat.example.com"),
        ("inbox:ada", "inbox", "inbox:ada"),
        ("tgram://secret/chat", "apprise", "tgram://…"),
    ],
)
def test_an_address_belongs_to_one_channel_and_is_shown_without_secrets(address: str, name: str, shown: str) -> None:
    channel = channel_of(address)

    assert channel and channel.name == name
    assert channel.shown(address) == shown
    assert "secret" not in channel.host(address)


@pytest.mark.parametrize(
    ("address", "fault"),
    [
        ("ops@example.com", "no channel sends there"),
        ("https://", "it has no host"),
        ("https://example.com/#secret", "the part behind # is no signing secret"),
        ("https://example.com/#whsec_c2hvcnQ=", "the part behind # is no signing secret"),
        ("inbox:", "write the name of a user"),
        ("slack+ftp://example.com", "no channel sends there"),
    ],
)
def test_the_fault_of_an_unusable_address_does_not_quote_it(address: str, fault: str) -> None:
    found = fault_of(address)

    assert found.startswith(fault) or (address.startswith("slack+ftp") and found)
    assert "example.com" not in found.replace("ops@example.com", "")


def test_every_file_with_a_channel_is_found() -> None:
    assert list(channels()) == ["mail", "slack", "webhook", "inbox", "apprise"]
