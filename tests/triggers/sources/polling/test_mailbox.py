"""A mailbox on a real connection: each message once, nothing marked as read, and a server that behaves badly is bounded."""

import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.certificates import certificate_of
from tests.support.examples import some_cases
from tests.support.imap_server import ImapServer
from tests.triggers.sources.polling.conftest import Polling
from tests.triggers.sources.polling.test_gmail import Clock
from tests.triggers.sources.polling.test_gmail import clock as clock
from triggers.sources.polling import mailbox
from triggers.sources.runner import Batch, Poison, Received, SourceError


@pytest.fixture
def server(settings: Any) -> Iterator[ImapServer]:
    settings.WAKEFUL_HTTP_NETWORKS = ["127.0.0.0/8"]
    server = ImapServer()
    yield server
    server.gate.set()
    server.close()


def polling(server: ImapServer, **settings: Any) -> Polling:
    where = {"host": "127.0.0.1", "port": server.port, "user": server.user}
    return Polling("imap", secret=settings.pop("secret", server.password), **{"tls": "none", **where, **settings})


def letter(number: int, size: int = 0) -> bytes:
    return b"From: Bob <bob@example.com>\r\nSubject: Letter %d\r\nMessage-ID: <%d@x>\r\n\r\nHello\r\n%s" % (
        number, number, b"x" * size
    )  # fmt: skip


def subjects(batch: Batch) -> list[str]:
    return [message.payload.data["subject"] for message in batch.messages if isinstance(message, Received)]


def test_each_new_message_is_one_event_and_stays_unread(server: ImapServer) -> None:
    source = polling(server)
    server.add(letter(1))

    first = source.poll()
    server.add(letter(2))
    server.add(letter(3))
    second, third = source.poll(), source.poll()

    assert (subjects(first), subjects(second), subjects(third)) == ([], ["Letter 2", "Letter 3"], [])
    assert not any(message.flags for message in server.messages.values())
    message = second.messages[0]
    assert isinstance(message, Received)
    assert (message.type, message.subject, message.body) == ("mail.received", "bob@example.com", letter(2))


def test_messages_are_marked_as_read_with_the_setting_after_they_are_recorded(server: ImapServer) -> None:
    server.add(letter(1))
    source = polling(server, mark_read=True, begin_with="all")
    reader = source.reader()

    batch = reader.read(0.1)
    before = set(server.messages[1].flags)
    reader.confirm(batch)

    assert (before, server.messages[1].flags) == (set(), {r"\Seen"})


def test_a_mailbox_that_was_made_again_repeats_no_event(server: ImapServer) -> None:
    for number in (1, 2):
        server.add(letter(number))
    source = polling(server, begin_with="all")
    first = source.poll()

    server.rebuild()
    server.add(letter(3))
    second, third = source.poll(), source.poll()

    ids = [[message.id for message in batch.messages] for batch in (first, second, third)]
    assert ids[0] == ids[1][:2]  # duplicates of these events
    assert subjects(second)[2:] == ["Letter 3"]
    assert ids[2] == []


def test_a_message_that_is_too_large_is_read_in_part(server: ImapServer, monkeypatch: Any) -> None:
    monkeypatch.setattr(mailbox, "LARGEST", 1_000)
    monkeypatch.setattr(mailbox, "BEGINNING", 200)
    server.add(letter(1, size=5_000))

    [message] = polling(server, begin_with="all").poll().messages

    assert isinstance(message, Received)
    assert len(message.body or b"") == 200
    assert message.payload.data["size"] == len(letter(1, size=5_000))
    assert message.payload.data["defects"] == ["larger than 1,000 bytes: only its beginning is kept"]


@pytest.mark.parametrize("guess", [-40, 40])
def test_a_message_is_read_whole_although_the_server_reports_a_wrong_size(server: ImapServer, guess: int) -> None:
    server.add(letter(1))
    server.guess = guess

    [message] = polling(server, begin_with="all").poll().messages

    assert isinstance(message, Received)
    assert message.body == letter(1)
    assert (message.payload.data["size"], message.payload.data["defects"]) == (len(letter(1)), [])


def test_a_slow_server_is_read_in_several_polls(server: ImapServer, monkeypatch: Any) -> None:
    monkeypatch.setattr(mailbox, "SECONDS", 2.0)
    server.pause = 0.7
    for number in (1, 2, 3, 4):
        server.add(letter(number))
    source = polling(server, begin_with="all")

    found = subjects(source.poll()) + subjects(source.poll())

    assert found[:2] == ["Letter 1", "Letter 2"]


def test_many_messages_are_read_in_several_batches(server: ImapServer, monkeypatch: Any) -> None:
    monkeypatch.setattr(mailbox, "MOST_MESSAGES", 2)
    for number in (1, 2, 3):
        server.add(letter(number))
    server.messages.pop(2)  # UIDs have gaps
    server.add(letter(4))
    source = polling(server, begin_with="all")

    first, second = source.poll(), source.poll()

    assert (subjects(first), subjects(second)) == (["Letter 1", "Letter 3"], ["Letter 4"])
    assert first.next_in.total_seconds() == 1


def test_old_mail_of_a_mailbox_that_was_made_again_is_left_alone(server: ImapServer) -> None:
    server.add(letter(1))
    source = polling(server)
    source.poll()

    server.rebuild()
    server.is_old = True
    rebuilt = source.poll()
    server.add(letter(2))

    assert (subjects(rebuilt), subjects(source.poll())) == ([], ["Letter 2"])


@pytest.mark.parametrize("how", some_cases(["body", "any", "drop", "hang", "empty"]))
def test_a_message_that_the_server_never_gives_is_set_aside_and_the_others_go_on(
    how: str, server: ImapServer, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how == "hang":
        monkeypatch.setattr(mailbox, "SECONDS", 3.0)
    for number in (1, 2, 3, 4):
        server.add(letter(number))
    server.broken[2] = how
    source = polling(server, begin_with="all", mark_read=True)

    found: list[Received | Poison] = []
    for _ in range(8):
        found += source.poll().messages
        clock.later(minutes=6)

    assert [one.payload.data["subject"] for one in found if isinstance(one, Received)] == [
        "Letter 1", "Letter 3", "Letter 4"
    ]  # fmt: skip
    [aside] = [one for one in found if isinstance(one, Poison)]
    assert aside.id == "message:7/2" and "It is tried again each hour" in aside.reason
    assert not server.messages[2].flags

    server.broken.clear()
    clock.later(hours=1)
    batch = source.poll()
    assert subjects(batch) == ["Letter 2"] and batch.keep
    assert server.messages[2].flags == {r"\Seen"}
    assert not source.poll().messages


def test_while_the_server_gives_no_message_none_is_set_aside(server: ImapServer, clock: Clock) -> None:
    for number in (1, 2):
        server.add(letter(number))
        server.broken[number] = "body"
    source = polling(server, begin_with="all")

    for _ in range(5):
        clock.later(hours=1)
        batch = source.poll()
        assert "Internal error" in str(batch.failure) and not batch.messages
    server.broken.clear()

    assert subjects(source.poll()) == ["Letter 1", "Letter 2"]


def test_a_message_that_was_set_aside_ends_with_the_mailbox(server: ImapServer, clock: Clock) -> None:
    for number in (1, 2):
        server.add(letter(number))
    server.broken[1] = "body"
    source = polling(server, begin_with="all")
    for _ in range(4):
        source.poll()
        clock.later(minutes=6)

    server.broken.clear()
    server.rebuild()
    given_up, *read = source.poll().messages

    assert isinstance(given_up, Poison) and given_up.id == "message:7/1"
    assert given_up.reason.endswith("the mailbox was made again. It is not tried again.")
    assert len(read) == 2
    clock.later(hours=2)
    assert not source.poll().messages


def test_a_refused_message_of_a_mailbox_that_was_made_again_leaves_old_mail_alone(
    server: ImapServer, clock: Clock
) -> None:
    for number in (1, 2):
        server.add(letter(number))
    source = polling(server)
    source.poll()
    server.rebuild()
    server.recent = 101
    server.broken[101] = "body"

    assert source.poll().failure
    server.broken.clear()

    assert subjects(source.poll()) == ["Letter 2"]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"secret": "wrong"}, "refuses the user or the password"),
        ({"mailbox": "Other"}, "no mailbox Other"),
        ({"port": 1}, "cannot be read"),
        ({"host": "localhost.invalid"}, "cannot be found"),
    ],
)
def test_a_mailbox_that_cannot_be_opened_gives_the_reason(
    server: ImapServer, wrong: dict[str, Any], error: str
) -> None:
    with pytest.raises(SourceError, match=error):
        polling(server, **wrong).poll()


@pytest.mark.parametrize("behaviour", ["silent", "endless", "huge"])
def test_a_server_that_is_slow_or_never_ends_is_left(server: ImapServer, behaviour: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(mailbox, "SECONDS", 1.0)
    monkeypatch.setattr(mailbox, "MOST_BYTES", 1_000_000)
    server.add(letter(1))
    server.behaviour = behaviour

    began = time.monotonic()
    with pytest.raises(SourceError, match="in time|more than was requested"):
        raise polling(server, begin_with="all").poll().failure or AssertionError

    assert time.monotonic() - began < 25  # without a limit, half a minute


def test_a_server_inside_is_refused(server: ImapServer, settings: Any) -> None:
    settings.WAKEFUL_HTTP_NETWORKS = []

    with pytest.raises(SourceError, match="not a public one"):
        polling(server).poll()

    assert server.connections == 0


def test_a_server_with_an_unknown_certificate_is_refused(settings: Any, tmp_path: Path) -> None:
    settings.WAKEFUL_HTTP_NETWORKS = ["127.0.0.0/8"]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate_of("127.0.0.1", tmp_path))
    server = ImapServer(tls=context)
    try:
        with pytest.raises(SourceError, match="CERTIFICATE_VERIFY_FAILED"):
            polling(server, tls="tls").poll()
    finally:
        server.close()
    assert not server.commands


def test_answers_before_tls_do_not_count(server: ImapServer) -> None:
    server.behaviour = "talks before TLS"

    with pytest.raises(SourceError):
        polling(server, tls="starttls").poll()

    assert not any("AUTHENTICATE" in command or "LOGIN" in command for command in server.commands)
