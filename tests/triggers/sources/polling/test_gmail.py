"""Gmail by its API and a connection, against a server that gives the shapes of its reference."""

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.db import transaction

from runs.connections import lease as leases
from tests.support.connections import connected
from tests.support.hooks import make_source
from tests.support.list_server import ListServer, Page
from tests.support.oauth_server import providing_tokens
from tests.support.secrets import forgotten as forgotten
from tests.triggers.sources.polling.conftest import Polling
from triggers.models import PoisonMessage
from triggers.sources.polling import account_mail, by_connection, gmail, unread
from triggers.sources.polling.unread import forget_poison
from triggers.sources.runner import Batch, Poison, Received

pytestmark = pytest.mark.django_db


class Mailbox(dict[str, Page]):
    def __init__(self) -> None:
        super().__init__()
        self.messages: dict[str, tuple[bytes, list[str]]] = {}
        self.history: list[tuple[int, str]] = []
        self.number = 100
        self.forgotten = 0  # history before it
        self.large: set[str] = set()
        self.broken: dict[str, int] = {}  # the status of each answer to a message
        self.quota: int | None = None  # messages of a poll
        self.given = 0

    def add(self, id: str, *labels: str, attachment: bytes = b"") -> None:
        mail = EmailMessage()
        mail["From"], mail["Subject"], mail["Message-ID"] = "Anna <anna@example.org>", id, f"<{id}@example.org>"
        mail.set_content("Hello")
        if attachment:
            mail.add_attachment(attachment, maintype="application", subtype="pdf", filename="a.pdf")
        self.messages[id] = (mail.as_bytes(), list(labels or ("INBOX", "UNREAD")))
        self.number += 1
        self.history.append((self.number, id))

    def get(self, path: str, default: Any = None) -> Page:
        parts = urlsplit(path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        name = parts.path.removeprefix("/me/")
        if name == "profile":
            return answer({"emailAddress": "me@example.org", "historyId": str(self.number)})
        if name == "messages":
            return answer({"messages": [{"id": id} for _, id in reversed(self.history) if id in self.messages]})
        if name == "history":
            return self.since(int(query["startHistoryId"]), int(query.get("pageToken", 0)))
        return self.one(name.removeprefix("messages/"), query["format"])

    def since(self, start: int, first: int) -> Page:
        if start < self.forgotten:
            return answer({"error": {"message": "Requested entity was not found."}}, 404)
        there = [one for one in self.history if one[0] > start]
        records = [
            {
                "id": str(number),
                "messagesAdded": [{"message": {"id": id, "labelIds": self.messages.get(id, (b"", []))[1]}}],
            }
            for number, id in there[first : first + 2]
        ]
        more = {"nextPageToken": str(first + 2)} if first + 2 < len(there) else {}
        return answer({"history": records, "historyId": str(self.number), **more})

    def one(self, id: str, format: str) -> Page:
        if id not in self.messages:
            return answer({"error": {"message": "Not found."}}, 404)
        if id in self.broken:
            return answer({"error": {"message": "Internal error encountered."}}, self.broken[id])
        if self.quota is not None and self.given == self.quota:
            self.given = 0
            return Page(b"{}", 429, {"Retry-After": "7"})
        self.given += 1
        raw, labels = self.messages[id]
        shown: dict[str, Any] = {
            "id": id,
            "labelIds": labels,
            "sizeEstimate": 30_000_000 if id in self.large else len(raw),
        }
        if format == "metadata":
            return answer({**shown, "payload": {"headers": [{"name": "Subject", "value": id}]}})
        padding = "A" * gmail.MOST_RAW if id in self.large else ""
        return answer({**shown, "raw": base64.urlsafe_b64encode(raw).decode().rstrip("=") + padding})


def answer(found: Any, status: int = 200) -> Page:
    return Page(json.dumps(found).encode(), status)


@pytest.fixture
def mailbox(site: ListServer, settings: Any, forgotten: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mailbox]:
    for module in (leases, by_connection):  # in the session of the test
        monkeypatch.setattr(module, "to_its_end", lambda act: act())
    monkeypatch.setattr(leases, "writing", transaction.atomic)
    monkeypatch.setattr(gmail, "API", site.url("/me"))
    with providing_tokens() as provider:
        connected(provider, "mail", settings={**provider.settings, "hosts": [urlsplit(site.url()).netloc]})
        site.pages = box = Mailbox()
        yield box


def subjects(batch: Batch) -> list[str]:
    return [one.payload.data["subject"] for one in batch.messages if isinstance(one, Received)]


def test_each_message_that_has_come_is_one_event_in_the_shape_of_a_mailbox(mailbox: Mailbox) -> None:
    mailbox.add("old")
    source = Polling("gmail", connection="mail")
    assert subjects(source.poll()) == []
    for number in range(5):
        mailbox.add(f"m{number}", attachment=b"%PDF" if number == 0 else b"")
    mailbox.add("sent", "SENT")
    mailbox.add("draft", "DRAFT")
    mailbox.add("archived-and-read", "Label_1")
    del mailbox.messages["m3"]

    batch = source.poll()

    assert subjects(batch) == ["m0", "m1", "m2", "m4", "archived-and-read"]
    first = batch.messages[0]
    assert isinstance(first, Received) and (first.type, first.id) == ("mail.received", "message:m0")
    assert first.subject == "anna@example.org" and first.payload.data["thread_id"] == "<m0@example.org>"
    assert first.payload.data["labels"] == ["INBOX", "UNREAD"]
    assert first.payload.data["attachments"][0]["name"] == "a.pdf" and first.body
    assert subjects(source.poll()) == []


def test_a_history_that_has_expired_is_a_gap_and_the_last_days_are_read_again(mailbox: Mailbox) -> None:
    source = Polling("gmail", connection="mail")
    source.poll()
    mailbox.add("a")
    mailbox.forgotten = 1_000

    batch = source.poll()

    assert subjects(batch) == ["a"]
    [gap] = batch.gaps
    assert "forgotten" in gap.detail
    mailbox.forgotten = 0
    mailbox.add("b")
    batch = source.poll()
    assert subjects(batch) == ["b"] and not batch.gaps


def test_many_messages_are_read_poll_by_poll_and_none_twice(mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account_mail, "MOST_MESSAGES", 4)
    for number in range(11):
        mailbox.add(f"m{number}")
    source = Polling("gmail", connection="mail", begin_with="all")

    found = [subject for _ in range(4) for subject in subjects(source.poll())]

    assert found == [f"m{number}" for number in range(11)]
    for number in range(11, 22):  # more than the pages of one poll
        mailbox.add(f"m{number}")
    assert [one for _ in range(6) for one in subjects(source.poll())] == [f"m{number}" for number in range(11, 22)]


def test_a_message_that_is_too_large_keeps_its_header(mailbox: Mailbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gmail, "MOST_RAW", 50_000)
    source = Polling("gmail", connection="mail")
    source.poll()
    mailbox.add("large")
    mailbox.large.add("large")

    [one] = source.poll().messages

    assert isinstance(one, Received) and one.payload.data["subject"] == "large"
    assert one.payload.data["size"] == 30_000_000 and "larger than" in one.payload.data["defects"][-1]


def test_what_was_read_before_the_provider_asks_for_a_pause_is_recorded(mailbox: Mailbox) -> None:
    source = Polling("gmail", connection="mail")
    source.poll()
    for number in range(5):
        mailbox.add(f"m{number}")
    mailbox.quota = 2

    batches = [source.poll() for _ in range(3)]

    assert [ids(batch) for batch in batches] == [
        ["message:m0", "message:m1"],
        ["message:m2", "message:m3"],
        ["message:m4"],
    ]
    assert [str(batch.failure and batch.failure.retry_after) for batch in batches] == ["0:00:07", "0:00:07", "None"]
    mailbox.quota = mailbox.given = 0
    mailbox.add("m5")
    batch = source.poll()
    assert "answers 429" in str(batch.failure) and not batch.messages


class Clock:
    """The host's, which a test moves on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead = timedelta()
        monkeypatch.setattr(unread, "_now", lambda: datetime.now(UTC) + self.ahead)

    def later(self, **given: float) -> None:
        self.ahead += timedelta(**given)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def begun(mailbox: Mailbox, *added: str) -> Polling:
    source = Polling("gmail", connection="mail")
    source.poll()
    for id in added:
        mailbox.add(id)
    return source


@pytest.mark.parametrize("status", [400, 403, 500])
def test_a_message_that_the_provider_never_gives_is_set_aside_and_the_others_go_on(
    status: int, mailbox: Mailbox, clock: Clock
) -> None:
    source = begun(mailbox, "broken", "a", "b")
    mailbox.broken["broken"] = status

    for _ in range(3):  # for a while the order is kept
        batch = source.poll()
        assert f"answers {status}" in str(batch.failure) and not batch.messages
    clock.later(minutes=16)
    [aside] = source.poll().messages

    assert isinstance(aside, Poison) and aside.id == "message:broken"
    assert f"answers {status}: Internal error encountered. It is tried again each hour" in aside.reason
    assert subjects(source.poll()) == ["a", "b"]


def test_a_message_that_was_set_aside_is_an_event_once_the_provider_gives_it(mailbox: Mailbox, clock: Clock) -> None:
    kept = make_source("polled", "gmail", secret=None)
    source = begun(mailbox, "broken", "a")
    mailbox.broken["broken"] = 500
    source.poll(), source.poll()
    clock.later(minutes=16)
    source.poll()
    source.poll()
    PoisonMessage.objects.create(source=kept, origin="o", message_id="message:broken", reason="r", body=b"", size=0)

    clock.later(minutes=61)
    [still] = source.poll().messages
    assert isinstance(still, Poison)
    assert not source.poll().messages
    mailbox.broken.clear()
    mailbox.add("b")
    clock.later(minutes=61)
    batch = source.poll()

    assert subjects(batch) == ["b", "broken"]
    assert batch.keep
    forget_poison(kept.pk, "message:broken")
    assert not PoisonMessage.objects.exists()
    clock.later(minutes=61)
    assert not source.poll().messages


def test_a_message_that_fails_for_a_week_is_tried_no_more(mailbox: Mailbox, clock: Clock) -> None:
    source = begun(mailbox, "broken", "a")
    mailbox.broken["broken"] = 500
    source.poll(), source.poll()
    clock.later(minutes=16)
    source.poll()
    clock.later(days=8)

    batch = source.poll()
    *_, last = batch.messages

    assert subjects(batch) == ["a"]
    assert isinstance(last, Poison) and last.reason.endswith("It is not tried again.")
    clock.later(days=1)
    assert not source.poll().messages


def test_a_message_that_makes_way_for_another_one_is_shown_as_given_up(
    mailbox: Mailbox, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unread, "MOST", 1)
    source = begun(mailbox, "first", "second", "a")
    mailbox.broken = {"first": 500, "second": 500}

    found: list[Received | Poison] = []
    for _ in range(8):
        found += source.poll().messages
        clock.later(minutes=6)

    shown = [(one.id, one.reason.rpartition(". ")[2]) for one in found if isinstance(one, Poison)]
    assert shown == [
        ("message:first", "It is tried again each hour for seven days."),
        ("message:first", "It is not tried again."),
        ("message:second", "It is tried again each hour for seven days."),
    ]


def test_while_the_provider_gives_no_message_none_is_set_aside(mailbox: Mailbox, clock: Clock) -> None:
    source = begun(mailbox, "a", "b")
    mailbox.broken = {"a": 403, "b": 403}
    for _ in range(10):
        clock.later(hours=1)
        assert source.poll().failure

    mailbox.broken.clear()
    assert subjects(source.poll()) == ["a", "b"]


def test_a_message_that_alone_waits_holds_up_none_that_comes(mailbox: Mailbox, clock: Clock) -> None:
    source = begun(mailbox, "broken")
    mailbox.broken["broken"] = 500
    for _ in range(5):
        clock.later(hours=1)
        assert source.poll().failure
    mailbox.add("a")

    [aside] = source.poll().messages

    assert isinstance(aside, Poison)
    assert subjects(source.poll()) == ["a"]


@pytest.mark.parametrize("count", [2, 9])
def test_several_messages_in_a_row_that_the_provider_never_gives_hold_up_none_that_comes(
    count: int, mailbox: Mailbox, clock: Clock
) -> None:
    broken = [f"broken-{number}" for number in range(count)]
    source = begun(mailbox, *broken)
    mailbox.broken = dict.fromkeys(broken, 500)
    for _ in range(3):
        clock.later(hours=1)
        assert source.poll().failure
    mailbox.add("a")

    found: list[Received | Poison] = []
    for _ in range(6 * count):
        clock.later(minutes=16)
        found += source.poll().messages

    assert {one.id for one in found if isinstance(one, Poison)} == {f"message:{id}" for id in broken}
    assert [one.id for one in found if isinstance(one, Received)] == ["message:a"]


def ids(batch: Batch) -> list[str]:
    return [message.id for message in batch.messages]
