"""Reading streams of a real NATS server."""

import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from nats.js.api import RetentionPolicy

from tests.support.brokers import Message
from tests.support.certificates import certificate_of
from tests.support.nats_server import NatsServer, NatsStream, nats_server
from triggers.sources.brokers import nats as kind
from triggers.sources.brokers.nats import Nats
from triggers.sources.continuity import Marks, Reason, compare
from triggers.sources.runner import Assignment, Batch, Reader, Received, SourceError
from triggers.sources.settings import InvalidSettings

pytestmark = pytest.mark.chaos

KIND = Nats()
NUMBERED: list[Message] = [("ada", number) for number in range(1200)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    with nats_server(tmp_path_factory.mktemp("nats")) as server:
        yield server


class Readers:
    """Readers of streams, which are closed at the end."""

    def __init__(self, stack: ExitStack) -> None:
        self.stack = stack

    def of(
        self,
        broker: NatsStream,
        /,
        *,
        position: Any = None,
        marks: Marks | None = None,
        secret: str = "",
        **changes: Any,
    ) -> Reader:
        cleaned = KIND.clean_settings({**broker.settings, **changes})
        reader = KIND.connect(
            Assignment(
                slug="orders", settings=cleaned, secret=secret or broker.secret, position=position, marks=marks or {}
            )
        )
        self.stack.callback(reader.close)
        return reader


@pytest.fixture
def readers() -> Iterator[Readers]:
    with ExitStack() as stack:
        yield Readers(stack)


def read(reader: Reader, count: int) -> tuple[list[Any], Any]:
    """So many messages, and the position behind them."""
    found: list[Any] = []
    position = None
    while len(found) < count:
        batch = reader.read(1)
        found += batch.messages
        position = batch.position or position
    return found, position


def numbers(found: Any) -> list[int]:
    assert all(isinstance(message, Received) for message in found)
    return [message.payload.data["number"] for message in found]


def test_messages_are_read_in_order_each_with_its_own_id(server: NatsServer, readers: Readers) -> None:
    stream = NatsStream(server)
    stream.send(NUMBERED)

    found, position = read(readers.of(stream), len(NUMBERED))

    assert numbers(found) == list(range(len(NUMBERED)))
    assert len({message.id for message in found}) == len(NUMBERED)
    assert {message.subject for message in found} == {"ada"}
    assert position["sequence"] == len(NUMBERED)
    assert all(message.time for message in found)


def test_reading_goes_on_behind_the_recorded_place(server: NatsServer, readers: Readers) -> None:
    stream = NatsStream(server)
    stream.send(NUMBERED[:10])
    first, position = read(readers.of(stream), 10)
    stream.send(NUMBERED[10:20])

    again, _ = read(readers.of(stream), 20)
    behind, _ = read(readers.of(stream, position=position), 10)

    assert [message.id for message in again[:10]] == [message.id for message in first]
    assert numbers(behind) == list(range(10, 20))


def test_a_new_source_begins_with_new_messages_also_after_a_restart_before_the_first(
    server: NatsServer, readers: Readers
) -> None:
    stream = NatsStream(server)
    stream.send(NUMBERED[:3])
    batch: Batch = readers.of(stream, start="new").read(0.1)
    stream.send(NUMBERED[3:5])

    found, _ = read(readers.of(stream, start="new", position=batch.position), 2)

    assert not batch.messages
    assert numbers(found) == [3, 4]


def test_only_the_messages_of_the_subjects_are_read(server: NatsServer, readers: Readers) -> None:
    stream = NatsStream(server)
    stream.send([("ada", 1), ("bob", 2), ("ada", 3)])

    found, _ = read(readers.of(stream, subjects=f"{stream.name}.ada", subject_path=""), 2)

    assert numbers(found) == [1, 3]
    assert {message.subject for message in found} == {f"{stream.name}.ada"}


def test_a_message_id_of_the_publisher_and_a_cloud_event_identify_their_events(
    server: NatsServer, readers: Readers
) -> None:
    stream = NatsStream(server)
    stream.put(b'{"number": 1}', headers={"Nats-Msg-Id": "m-1", "trace": "t-1"})
    attributes = {"ce-specversion": "1.0", "ce-id": "c-1", "ce-source": "/shop", "ce-type": "order.placed"}
    stream.put(b'{"number": 2}', headers={**attributes, "content-type": "application/json"})

    found, _ = read(readers.of(stream), 2)

    assert (found[0].id.partition("#")[0], found[0].headers["trace"]) == ("m-1", "t-1")
    assert (found[1].origin, found[1].id, found[1].type) == ("/shop", "c-1", "order.placed")


class Reading:
    """What a source's process does with batches: it keeps position and marks, and finds the gaps."""

    def __init__(self, readers: Readers, stream: NatsStream) -> None:
        self.readers, self.stream = readers, stream
        self.position: Any = None
        self.marks: Marks = {}
        self.reader: Reader | None = None
        self.found: list[Any] = []
        self.gaps: list[tuple[Reason, str, str, int | None]] = []

    def connect(self, **changes: Any) -> None:
        self.reader = self.readers.of(self.stream, position=self.position, marks=self.marks, **changes)

    def read(self, *, until: int = 0) -> None:
        """One batch, or so many messages in all."""
        is_first = True
        while is_first or len(self.found) < until:
            assert self.reader
            batch = self.reader.read(0.3)
            gaps, self.marks = compare(self.marks, batch.spans)
            self.gaps += [(gap.reason, gap.start, gap.end, gap.count) for gap in gaps]
            self.position = batch.position or self.position
            self.found += batch.messages
            is_first = False


def test_messages_that_were_deleted_before_they_were_read_are_a_gap(server: NatsServer, readers: Readers) -> None:
    reading = Reading(readers, NatsStream(server, most=10))
    reading.stream.send(NUMBERED[:5])
    reading.connect()
    reading.read(until=5)
    reading.stream.send(NUMBERED[5:30])
    reading.connect()
    reading.read(until=15)

    assert reading.gaps == [(Reason.TRIMMED, "6", "20", 15)]
    assert numbers(reading.found[5:]) == list(range(20, 30))
    assert reading.position["sequence"] == 30


@pytest.mark.parametrize("start", ["beginning", "new"])
def test_a_burst_between_two_looks_is_a_gap(server: NatsServer, readers: Readers, start: str) -> None:
    reading = Reading(readers, NatsStream(server, most=100))
    reading.stream.send(NUMBERED[:1])
    reading.connect(start=start)
    reading.read(until=1 if start == "beginning" else 0)
    reading.stream.send(NUMBERED)
    reading.read(until=len(reading.found) + 100)

    assert reading.gaps == [(Reason.TRIMMED, "2", "1101", 1100)]


def test_a_gap_before_wakeful_kept_marks_is_seen_by_the_position(server: NatsServer, readers: Readers) -> None:
    reading = Reading(readers, NatsStream(server, most=10))
    reading.stream.send(NUMBERED[:5])
    reading.connect()
    reading.read(until=5)
    reading.marks = {}
    reading.stream.send(NUMBERED[5:30])
    reading.connect()
    reading.read(until=15)

    assert reading.gaps == [(Reason.TRIMMED, "6", "20", 15)]


def test_messages_that_were_all_deleted_are_a_gap(
    server: NatsServer, readers: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, "LOOK_EVERY", 0.0)
    reading = Reading(readers, NatsStream(server))
    reading.stream.send(NUMBERED[:5])
    reading.connect()
    reading.read(until=5)
    reading.stream.send(NUMBERED[5:12])
    reading.stream.do(lambda stream: stream.purge_stream(reading.stream.name))
    reading.connect()
    reading.read()

    assert reading.gaps == [(Reason.TRIMMED, "6", "12", 7)]


def test_messages_that_were_deleted_from_the_middle_are_a_gap(server: NatsServer, readers: Readers) -> None:
    reading = Reading(readers, NatsStream(server))
    reading.stream.send(NUMBERED[:6])
    for sequence in (2, 3, 5):
        reading.stream.do(lambda stream, sequence=sequence: stream.delete_msg(reading.stream.name, sequence))
    reading.connect()
    reading.read(until=3)

    assert reading.gaps == [(Reason.TRIMMED, "2", "5", 3)]


def test_with_subjects_what_others_have_is_no_gap(server: NatsServer, readers: Readers) -> None:
    reading = Reading(readers, NatsStream(server))
    reading.stream.send([("ada", 1), ("bob", 2), ("bob", 3), ("ada", 4)])
    reading.connect(subjects=f"{reading.stream.name}.ada")
    reading.read(until=2)

    assert not reading.gaps


def test_a_stream_that_was_made_again_is_read_from_its_beginning(server: NatsServer, readers: Readers) -> None:
    reading = Reading(readers, NatsStream(server))
    reading.stream.send(NUMBERED[:5])
    reading.connect()
    reading.read(until=5)
    reading.stream.delete()
    reading.stream.make()
    reading.stream.send(NUMBERED[:8])
    reading.connect(start="new")
    reading.read(until=13)

    assert len({message.id for message in reading.found}) == 13
    assert reading.gaps == [(Reason.RECREATED, "6", "", None)]


@pytest.mark.parametrize("has_grown", [False, True])
def test_a_stream_that_was_restored_from_a_copy_loses_nothing_of_what_it_has(
    tmp_path: Path, readers: Readers, has_grown: bool
) -> None:
    with nats_server(tmp_path) as server:
        stream = NatsStream(server)
        stream.send(NUMBERED[:5])
        server.signal(signal.SIGTERM)
        server.process.wait()
    shutil.copytree(tmp_path / "jetstream", tmp_path / "copy")
    with nats_server(tmp_path) as server:
        stream.server = server
        stream.send(NUMBERED[5:20])
        reading = Reading(readers, stream)
        reading.connect()
        reading.read(until=20)
        server.signal(signal.SIGTERM)
        server.process.wait()
    shutil.rmtree(tmp_path / "jetstream")
    shutil.copytree(tmp_path / "copy", tmp_path / "jetstream")
    with nats_server(tmp_path) as server:
        stream.server = server
        new = NUMBERED[100 : 130 if has_grown else 110]
        stream.send(new)
        reading.connect()
        reading.read(until=20 + 5 + len(new))
        reading.connect()
        reading.read()

    by_id = {message.id: message.payload.data["number"] for message in reading.found}
    assert sorted(by_id.values()) == [*range(20), *(number for _, number in new)]
    assert [reason for reason, *_ in reading.gaps] == [Reason.RESTORED]


def test_an_id_of_the_publisher_that_comes_again_after_the_duplicate_window_is_another_event(
    server: NatsServer, readers: Readers
) -> None:
    stream = NatsStream(server)
    stream.put(b'{"number": 1}', headers={"Nats-Msg-Id": "m-1"})
    time.sleep(0.5)  # the stream forgets ids after 0.2 s
    stream.put(b'{"number": 2}', headers={"Nats-Msg-Id": "m-1"})

    found, _ = read(readers.of(stream), 2)

    assert numbers(found) == [1, 2]
    assert found[0].id != found[1].id


def test_messages_that_wait_are_the_lag(server: NatsServer, readers: Readers) -> None:
    stream = NatsStream(server)
    stream.send(NUMBERED)

    batch = readers.of(stream).read(1)

    assert batch.lag == len(NUMBERED) - len(batch.messages)


def test_a_stream_that_cannot_be_read_is_an_error_with_its_cause(server: NatsServer, readers: Readers) -> None:
    stream = NatsStream(server)
    with pytest.raises(SourceError, match="does not exist"):
        readers.of(stream, stream="missing")
    with pytest.raises(SourceError, match="(?i)authorization"):
        readers.of(stream, secret="wrong")
    with pytest.raises(SourceError, match="when they are acknowledged"):
        readers.of(NatsStream(server, retention=RetentionPolicy.WORK_QUEUE))


def test_a_stream_that_is_deleted_is_an_error(
    server: NatsServer, readers: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, "LOOK_EVERY", 0.0)
    stream = NatsStream(server)
    reader = readers.of(stream)
    reader.read(0.1)
    stream.delete()

    with pytest.raises(SourceError, match="does not exist"):
        reader.read(0.1)


def test_a_server_that_freezes_is_an_error(
    server: NatsServer, readers: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, "ANSWER_TIMEOUT", 1)
    monkeypatch.setattr(kind, "CONNECT_TIMEOUT", 1)
    stream = NatsStream(server)
    reader = readers.of(stream)
    reader.read(0.1)
    server.signal(signal.SIGSTOP)
    try:
        with pytest.raises(SourceError, match="does not answer"):
            reader.read(0.1)
        with pytest.raises(SourceError, match="does not answer"):
            readers.of(stream)
    finally:
        server.signal(signal.SIGCONT)


def test_a_server_that_ends_is_an_error(tmp_path: Path, readers: Readers) -> None:
    with nats_server(tmp_path) as server:
        stream = NatsStream(server)
        reader = readers.of(stream)
    with pytest.raises(SourceError):
        reader.read(0.1)


def test_a_certificate_is_verified(tmp_path: Path, readers: Readers, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = certificate_of("127.0.0.1", tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with nats_server(tmp_path, certificate) as server:
        stream = NatsStream(server)
        stream.send(NUMBERED[:3])
        found, _ = read(readers.of(stream), 3)
        monkeypatch.delenv("SSL_CERT_FILE")
        with pytest.raises((SourceError, OSError), match="CERTIFICATE_VERIFY_FAILED"):
            readers.of(stream)

    assert numbers(found) == [0, 1, 2]


@pytest.mark.parametrize(
    ("servers", "message"),
    [("nats://user:password@host", "enter them as"), ("http://host", "tls://"), ("", "must be addresses")],
)
def test_servers_that_cannot_work_are_named(servers: str, message: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        KIND.clean_settings({"servers": servers, "stream": "orders"})

    assert message in caught.value.errors["servers"]
