import json
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

import pytest
from slack_sdk.signature import Clock, SignatureVerifier

from tests.support.deliveries import NOW, delivery, secrets, take
from triggers.sources.webhooks.proof import Rejected
from triggers.sources.webhooks.receive import Greeting, cleaned, receive

SECRET = "8f742231b10e8888abcd99yyyzzz85a5"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
COMMAND = (
    b"token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar"
    b"&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com"
    b"%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447"
    b"fce8b6703c"
)
MENTION = {
    "type": "event_callback",
    "team_id": "T123ABC456",
    "event_id": "Ev123ABC456",
    "event_time": 1795176000,
    "event": {"type": "app_mention", "user": "U061F7AUR", "text": "<@U0LAN0Z89> deploy", "channel": "C123ABC456"},
}


class At(Clock):
    def now(self) -> float:
        return NOW.timestamp()


def signed_headers(body: bytes, at: datetime = NOW) -> dict[str, str]:
    """Headers as Slack's SDK makes and checks them."""
    timestamp = str(int(at.timestamp()))
    signature = SignatureVerifier(SECRET).generate_signature(timestamp=timestamp, body=body)
    assert signature
    return {"X-Slack-Request-Timestamp": timestamp, "X-Slack-Signature": signature}


def as_json(data: Any) -> tuple[bytes, dict[str, str]]:
    body = json.dumps(data).encode()
    return body, {"Content-Type": "application/json", **signed_headers(body)}


def as_interaction(data: Any) -> tuple[bytes, dict[str, str]]:
    body = urlencode({"payload": json.dumps(data)}).encode()
    return body, FORM | signed_headers(body)


def greeted(body: bytes, headers: dict[str, str], *known: str) -> Greeting:
    received = receive(*cleaned("slack", {}), secrets(*known), delivery(body, headers))
    assert isinstance(received, Greeting)
    return received


def test_the_example_of_slacks_documentation_is_accepted() -> None:
    headers = FORM | {
        "X-Slack-Request-Timestamp": "1531420618",
        "X-Slack-Signature": "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
    }

    event = take("slack", COMMAND, headers, SECRET, at=datetime.fromtimestamp(1531420618, UTC)).event

    assert (event.type, event.subject) == ("slash_command", "/webhook-collect")
    assert event.ce_id == "398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
    assert (event.data["user_name"], event.data["text"]) == ("roadrunner", "")
    assert event.headers["x-slack-signature"] == "[redacted]"


def test_an_event_signed_by_slacks_sdk_is_accepted_and_described() -> None:
    body, headers = as_json(MENTION)

    event = take("slack", body, headers, SECRET).event

    assert SignatureVerifier(SECRET, At()).is_valid_request(body, headers)
    assert (event.type, event.ce_id, event.subject) == ("app_mention", "Ev123ABC456", "C123ABC456")
    assert (event.time, event.data) == (NOW, MENTION)


def test_a_retry_is_the_same_event() -> None:
    body, headers = as_json(MENTION)
    later = NOW.replace(minute=1)

    first = take("slack", body, headers, SECRET).event
    retried = {
        **headers,
        **signed_headers(body, later),
        "X-Slack-Retry-Num": "1",
        "X-Slack-Retry-Reason": "http_timeout",
    }

    assert take("slack", body, retried, SECRET, at=later).event.ce_id == first.ce_id


@pytest.mark.parametrize(
    ("event", "type_", "subject"),
    [
        ({"type": "message", "channel": "D024BE91L", "text": "hi"}, "message", "D024BE91L"),
        ({"type": "message", "subtype": "bot_message", "channel": "C1"}, "message.bot_message", "C1"),
        ({"type": "reaction_added", "item": {"channel": "C2"}}, "reaction_added", "C2"),
        ({"type": "channel_created", "channel": {"id": "C3"}}, "channel_created", "C3"),
        ({"type": "team_join", "user": {"id": "U4"}}, "team_join", "U4"),
    ],
)
def test_events_are_named_by_type_and_subtype(event: dict[str, Any], type_: str, subject: str) -> None:
    found = take("slack", *as_json(MENTION | {"event": event}), SECRET).event

    assert (found.type, found.subject) == (type_, subject)


@pytest.mark.parametrize(
    ("interaction", "subject"),
    [
        ({"type": "block_actions", "trigger_id": "1.2.a", "channel": {"id": "C1"}, "actions": [{}]}, "C1"),
        ({"type": "view_submission", "trigger_id": "1.2.b", "view": {"callback_id": "ask"}}, "ask"),
        ({"type": "shortcut", "trigger_id": "1.2.c", "callback_id": "shortcut_create_task"}, "shortcut_create_task"),
    ],
)
def test_an_interaction_is_the_json_in_the_form(interaction: dict[str, Any], subject: str) -> None:
    event = take("slack", *as_interaction(interaction), SECRET).event

    assert (event.type, event.ce_id, event.subject) == (interaction["type"], interaction["trigger_id"], subject)
    assert event.data == interaction


def test_a_challenge_is_echoed_and_is_no_event() -> None:
    greeting = greeted(*as_json({"type": "url_verification", "challenge": "3eZbrw1aBm2rZgRNFdxV2595E9CY3gmd"}), SECRET)

    assert (greeting.reply.status, greeting.reply.body) == (200, b"3eZbrw1aBm2rZgRNFdxV2595E9CY3gmd")
    assert greeting.reply.content_type == "text/plain"
    assert greeting.secret


def test_a_challenge_without_a_valid_signature_is_refused() -> None:
    body, headers = as_json({"type": "url_verification", "challenge": "x"})

    with pytest.raises(Rejected):
        greeted(body, headers, "another secret")


def test_the_check_of_a_certificate_is_no_event() -> None:
    body = b"ssl_check=1&token=xyz"

    assert greeted(body, FORM | signed_headers(body), SECRET).reply.body == b""
