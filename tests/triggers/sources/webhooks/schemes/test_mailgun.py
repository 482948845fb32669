import hashlib
import hmac
import json
import sys
from datetime import UTC, datetime, timedelta
from types import FrameType
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.support.deliveries import NOW, take
from tests.support.forms import multipart
from triggers.accept import Incoming
from triggers.sources.http.forms import parse_form
from triggers.sources.http.payload import read_payload
from triggers.sources.settings import InvalidSettings
from triggers.sources.webhooks.proof import MOST_UNPROVED, Rejected
from triggers.sources.webhooks.scheme import schemes

KEY = "key-3ax6xnjp29jd6fds4gc373sgvjxteol0"
TOKEN = "e0b5477167110d68991efc6b9f89f0a11066af27834600e123"
SECONDS = str(int(NOW.timestamp()))
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
JSON = {"Content-Type": "application/json"}
HEADERS = [
    ["Received", "from mail.example.com by mxa.mailgun.org"],
    ["Content-Type", 'multipart/mixed; boundary="b"'],
    ["Message-Id", "<2@example.com>"],
    ["In-Reply-To", "<1@example.com>"],
    ["Date", "Fri, 20 Nov 2026 12:58:00 +0100"],
    ["From", "Ada <ada@example.com>"],
    ["To", "support@agents.example.com"],
    ["Subject", "Re: Angebot"],
]
MAIL = {
    "sender": "ada@example.com",
    "recipient": "support@agents.example.com",
    "from": "Ada <ada@example.com>",
    "subject": "Re: Angebot",
    "body-plain": "Danke, passt für mich.\r\n> Angebot\r\n",
    "stripped-text": "Danke, passt für mich.",
    "message-headers": json.dumps(HEADERS),
}


def signature(seconds: str = SECONDS, token: str = TOKEN, key: str = KEY) -> dict[str, str]:
    digest = hmac.new(key.encode(), f"{seconds}{token}".encode(), hashlib.sha256).hexdigest()
    return {"timestamp": seconds, "token": token, "signature": digest}


@pytest.mark.parametrize("body", [urlencode({**MAIL, **signature()}).encode(), None])
def test_a_body_is_parsed_once(body: bytes | None) -> None:
    form, body = body is not None, body or webhook()
    parsed = []

    def count(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code in (parse_form.__code__, read_payload.__code__):
            parsed.append(frame.f_locals["body"])

    sys.setprofile(count)
    try:
        take("mailgun", body, FORM if form else JSON, KEY)
    finally:
        sys.setprofile(None)

    assert parsed.count(body) == 1


def webhook(signed: dict[str, str] | None = None, **event: Any) -> bytes:
    data = {
        "event": "failed",
        "severity": "permanent",
        "id": "G9Bn5sl1",
        "recipient": "bob@example.com",
        "timestamp": 1795175999.25,
    }
    return json.dumps(
        {"signature": signature() if signed is None else signed, "event-data": {**data, **event}}
    ).encode()


def form(signed: dict[str, str] | None = None, changed: dict[str, str] | None = None) -> bytes:
    return urlencode({**MAIL, **(changed or {}), **(signature() if signed is None else signed)}).encode()


def event_of(body: bytes, headers: dict[str, str] = JSON, at: datetime = NOW) -> Incoming:
    return take("mailgun", body, headers, KEY, at=at).event


def test_an_event_of_a_mail_is_named_by_the_signed_token() -> None:
    event = event_of(webhook())

    assert (event.ce_id, event.type, event.subject) == (TOKEN, "mail.failed", "bob@example.com")
    assert event.time == datetime(2026, 11, 20, 11, 59, 59, 250_000, tzinfo=UTC)
    assert event.data["event-data"]["severity"] == "permanent"


@pytest.mark.parametrize("timestamp", [None, "yesterday", 10**18, [1]])
def test_an_event_may_have_no_time(timestamp: Any) -> None:
    assert event_of(webhook(timestamp=timestamp)).time is None


def test_received_mail_is_read_like_mail_from_anywhere_else() -> None:
    event = event_of(form(), FORM)

    assert (event.ce_id, event.type, event.subject) == (TOKEN, "mail.received", "ada@example.com")
    assert event.time == datetime(2026, 11, 20, 11, 58, tzinfo=UTC)
    assert event.data["from"] == {"name": "Ada", "address": "ada@example.com"}
    assert (event.data["thread_id"], event.data["message_id"]) == ("<1@example.com>", "<2@example.com>")
    assert event.data["text"] == "Danke, passt für mich.\n> Angebot"
    assert event.data["stripped_text"] == "Danke, passt für mich."
    assert event.data["envelope"] == {"from": "ada@example.com", "to": ["support@agents.example.com"]}


def test_mail_with_attachments_comes_as_another_form() -> None:
    body, headers = multipart({**MAIL, **signature()}, ("offer.pdf", "application/pdf", b"%PDF"))

    event = event_of(body, headers)

    assert event.data["attachments"][0] | {"sha256": ""} == {
        "name": "offer.pdf", "type": "application/pdf", "size": 4, "sha256": "", "is_inline": False, "content": "JVBERg==",
    }  # fmt: skip
    assert event.data["text"] == event_of(form(), FORM).data["text"]


def test_a_raw_message_is_read_as_it_is() -> None:
    raw = "From: Ada <ada@example.com>\r\nMessage-Id: <2@example.com>\r\nSubject: Hi\r\n\r\nHello"

    event = event_of(form(changed={"body-mime": raw}), FORM)

    assert (event.data["subject"], event.data["text"]) == ("Hi", "Hello")


@pytest.mark.parametrize(
    "headers",
    [
        "",
        "{",
        "3",
        "[3]",
        '[["a"]]',
        '[["Bad: name", "x"]]',
        '[["X", "a\\r\\nBcc: b@c.d"]]',
        "[[null, {}]]",
        json.dumps([["To", "(" * 2_000 + "ü"], ["X", "ü" * 20_000]]),
    ],
)
def test_headers_of_strangers_do_no_harm(headers: str) -> None:
    event = event_of(form(changed={"message-headers": headers}), FORM)

    assert event.data["text"].startswith("Danke")
    assert event.data["cc"] == []


def test_headers_that_mailgun_has_decoded_are_read() -> None:
    headers = [
        ["From", "Jürgen Müller <j@example.com>"],
        ["To", "山田 <y@example.com>, b@ü.example"],
        ["Subject", "Grüße aus 東京"],
    ]

    data = event_of(form(changed={"message-headers": json.dumps(headers)}), FORM).data

    assert (data["from"], data["subject"]) == ({"name": "Jürgen Müller", "address": "j@example.com"}, "Grüße aus 東京")
    assert data["to"][0] | {"name": ""} == {"name": "", "address": "y@example.com"}


def test_a_retry_hours_later_is_the_same_event() -> None:
    first = event_of(webhook())

    assert event_of(webhook(), at=NOW + timedelta(hours=8)).ce_id == first.ce_id
    assert event_of(webhook(signature(token="another"))).ce_id != first.ce_id


def test_a_captured_signature_makes_no_second_event() -> None:
    assert event_of(webhook(event="delivered", id="forged")).ce_id == event_of(form(), FORM).ce_id == TOKEN


def test_a_signature_of_the_parent_account_is_accepted() -> None:
    of_parent = {**signature(key="of the subaccount"), "parent-signature": signature()["signature"]}

    assert event_of(webhook(of_parent)).type == "mail.failed"


@pytest.mark.parametrize(
    "signed",
    [
        {},
        signature(key="other"),
        signature() | {"token": "another"},
        signature() | {"timestamp": str(int(SECONDS) + 1)},
        signature() | {"signature": ""},
        signature() | {"signature": signature()["signature"].upper()},
        signature() | {"signature": "ÿ"},
        signature() | {"signature": f"{signature()['signature']}, {signature()['signature']}"},
        # The same text, divided at another digit.
        signature() | {"timestamp": SECONDS + TOKEN[0], "token": TOKEN[1:]},
        signature() | {"timestamp": SECONDS[:-1], "token": SECONDS[-1] + TOKEN},
        signature(str(int(SECONDS) + 301)),
        signature(str(int(SECONDS) - 301 - 9 * 3_600)),
        signature(token=""),
        signature(token="a b"),
    ],
)
def test_a_wrong_signature_or_time_is_refused(signed: dict[str, str]) -> None:
    for body, headers in ((webhook(signed), JSON), (form(signed), FORM), multipart({**MAIL, **signed})):
        with pytest.raises(Rejected):
            event_of(body, headers)


@pytest.mark.parametrize(
    ("body", "headers"),
    [(webhook()[:-1], JSON), (webhook().decode().encode("utf-16"), JSON), (form()[:-1], FORM), (webhook(), FORM), (form(), JSON),
     (b"", JSON), (b"", FORM), (b"[]", JSON), (b'{"signature": "x"}', JSON), (b'{"signature": {"token": ["a"]}}', JSON),
     (form(), {"Content-Type": "multipart/form-data; boundary=x"}), (form(), {"Content-Type": "multipart/form-data"})],
)  # fmt: skip
def test_a_body_without_a_signature_is_refused(body: bytes, headers: dict[str, str]) -> None:
    with pytest.raises(Rejected):
        event_of(body, headers)


def test_a_key_is_kept_without_the_space_around_it() -> None:
    assert schemes()["mailgun"].clean_secret(f" {KEY}\n") == KEY
    with pytest.raises(InvalidSettings, match="signing key"):
        schemes()["mailgun"].clean_secret(" ")


def test_json_that_is_too_long_is_refused_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    long = webhook(message="x" * MOST_UNPROVED)
    monkeypatch.setattr("triggers.sources.webhooks.schemes.mailgun.read_payload", lambda body: pytest.fail("parsed"))

    with pytest.raises(Rejected, match="JSON of more than"):
        take("mailgun", long, JSON, KEY)
