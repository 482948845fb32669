"""Reading a stream of a real Valkey."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import redis
from django.conf import settings

from tests.support.brokers import RedisStream
from triggers.sources.brokers import redis_streams
from triggers.sources.brokers.redis_streams import RedisStreams
from triggers.sources.continuity import Marks, Reason, compare, dump, load
from triggers.sources.runner import Assignment, Batch, Poison, Reader, Received, SourceError
from triggers.sources.settings import InvalidSettings

KIND = RedisStreams()


class Stream:
    """A stream, and readers of it."""

    def __init__(self, broker: RedisStream, stack: ExitStack) -> None:
        self.broker, self.stack = broker, stack

    def reader(self, *, position: Any = None, marks: Marks | None = None, **changes: Any) -> Reader:
        cleaned = KIND.clean_settings({**self.broker.settings, **changes})
        reader = KIND.connect(
            Assignment(slug="orders", settings=cleaned, secret=self.broker.secret, position=position, marks=marks or {})
        )
        self.stack.callback(reader.close)
        return reader

    def add(self, **fields: str) -> str:
        named: Any = fields
        added: Any = self.broker.client.xadd(self.broker.stream, named)
        return str(added.decode())


@pytest.fixture
def stream() -> Iterator[Stream]:
    with ExitStack() as stack:
        broker = RedisStream(settings.REDIS_URL)
        yield Stream(broker, stack)
        broker.client.delete(broker.stream)


def ids(batch: Batch) -> list[str]:
    return [message.id for message in batch.messages]


def test_an_entry_is_an_event_named_by_the_settings(stream: Stream) -> None:
    id = stream.add(body='{"type": "order.placed", "order": 7}', key="ada", trace="t-1")

    [message] = stream.reader(type_path="type").read(0.1).messages

    assert isinstance(message, Received)
    assert (message.id, message.type, message.subject) == (id, "order.placed", "ada")
    assert message.payload.data == {"type": "order.placed", "order": 7}
    assert message.headers == {"key": "ada", "trace": "t-1"}
    assert message.time and abs(message.time.timestamp() * 1000 - int(id.partition("-")[0])) < 1


def test_without_a_body_field_all_fields_are_the_data(stream: Stream) -> None:
    stream.add(sensor="s-1", celsius="21.5")

    [message] = stream.reader(body_field="", subject_field="sensor").read(0.1).messages

    assert isinstance(message, Received)
    assert (message.payload.data, message.subject) == ({"sensor": "s-1", "celsius": "21.5"}, "s-1")


def test_an_entry_without_the_body_field_is_poison(stream: Stream) -> None:
    stream.add(other="x")

    [message] = stream.reader().read(0.1).messages

    assert isinstance(message, Poison) and message.reason == "it has no field 'body'"


def test_entries_that_were_not_confirmed_come_first_and_again(stream: Stream) -> None:
    first, second = stream.add(body="1"), stream.add(body="2")
    assert ids(stream.reader().read(0.1)) == [first, second]
    third = stream.add(body="3")

    successor = stream.reader()
    again = successor.read(0.1)
    assert ids(again) == [first, second]
    assert again.position is None
    successor.confirm(again)
    new = successor.read(0.1)

    assert ids(new) == [third]
    assert new.position == third
    assert stream.broker.unconfirmed() == 1


def test_entries_that_another_consumer_left_are_taken_over(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_streams, "CLAIM_IDLE", 0.0)
    reader, left = stream.reader(), stream.add(body="1")
    stream.broker.client.xreadgroup("wakeful", "gone", {stream.broker.stream: ">"})

    batch = reader.read(0.1)
    reader.confirm(batch)

    assert ids(batch) == [left]
    assert stream.broker.unconfirmed() == 0


def test_an_entry_that_was_trimmed_before_it_was_confirmed_is_reported_to_be_lost(stream: Stream) -> None:
    id = stream.add(body="1")
    stream.reader().read(0.1)
    stream.broker.client.xtrim(stream.broker.stream, maxlen=0, approximate=False)

    reader = stream.reader()
    again = reader.read(0.1)
    reader.confirm(again)

    [message] = again.messages
    assert isinstance(message, Poison) and message.id == id and "deleted from the stream" in message.reason
    assert not reader.read(0.1).messages


def test_an_entry_that_another_consumer_left_and_that_was_trimmed_is_reported_to_be_lost(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_streams, "CLAIM_IDLE", 0.0)
    reader, left = stream.reader(), stream.add(body="1")
    stream.broker.client.xreadgroup("wakeful", "gone", {stream.broker.stream: ">"})
    stream.broker.client.xtrim(stream.broker.stream, maxlen=0, approximate=False)

    batch = reader.read(0.1)
    reader.confirm(batch)

    [message] = batch.messages
    assert isinstance(message, Poison) and message.id == left and "deleted from the stream" in message.reason


def test_a_group_that_is_gone_begins_again_behind_the_last_recorded_entry(stream: Stream) -> None:
    first, second = stream.add(body="1"), stream.add(body="2")
    reader = stream.reader()
    stream.broker.client.xgroup_destroy(stream.broker.stream, "wakeful")
    with pytest.raises(redis.ResponseError, match="NOGROUP"):
        reader.read(0.1)

    assert ids(stream.reader(position=first).read(0.1)) == [second]


def test_a_new_group_with_start_new_begins_with_new_entries(stream: Stream) -> None:
    stream.add(body="old")
    reader = stream.reader(start="new")
    new = stream.add(body="new")

    assert ids(reader.read(0.1)) == [new]


def test_the_lag_is_the_number_of_unread_entries(stream: Stream) -> None:
    reader = stream.reader()
    stream.add(body="1")

    assert reader.read(0.1).lag == 0


def test_a_key_that_is_no_stream_is_an_error_with_a_remedy(stream: Stream) -> None:
    stream.broker.client.set(stream.broker.stream, "text")

    with pytest.raises(SourceError, match="cannot be created") as caught:
        stream.reader()

    assert stream.broker.stream in caught.value.remedy


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("url", "redis://user:password@host/0", "enter it as the source's secret"),
        ("url", "http://host", "rediss://"),
        ("url", "redis://[", "must be an address"),
        ("stream", " ", "is required"),
    ],
)
def test_settings_that_cannot_work_are_named(field: str, value: str, message: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        KIND.clean_settings({"url": "redis://host/0", "stream": "orders", field: value})

    assert message in caught.value.errors[field]


class Reading:
    """What a source's process does with batches: it keeps position and marks, and finds the gaps."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.position: Any = None
        self.marks: Marks = {}
        self.reader: Reader | None = None
        self.ids: list[str] = []
        self.gaps: list[tuple[Reason, int | None]] = []

    def connect(self, **changes: Any) -> None:
        if self.reader:
            self.reader.close()
        self.reader = self.stream.reader(position=self.position, marks=self.marks, **changes)

    def read(self, batches: int = 3) -> None:
        for _ in range(batches):
            assert self.reader
            batch = self.reader.read(0.05)
            gaps, self.marks = compare(self.marks, batch.spans)
            self.marks = load(json.loads(json.dumps(dump(self.marks))))
            self.gaps += [(gap.reason, gap.count) for gap in gaps]
            self.position = batch.position or self.position
            self.ids += [message.id for message in batch.messages if isinstance(message, Received)]
            self.reader.confirm(batch)


@pytest.fixture
def reading(stream: Stream) -> Reading:
    return Reading(stream)


def fill(stream: Stream, count: int, *, most: int | None = None) -> None:
    with stream.broker.client.pipeline(transaction=False) as pipeline:
        for number in range(count):
            pipeline.xadd(stream.broker.stream, {"body": str(number)}, maxlen=most, approximate=False)
        pipeline.execute()


@pytest.mark.parametrize("start", ["beginning", "new"])
def test_entries_that_were_trimmed_before_they_were_delivered_are_counted(reading: Reading, start: str) -> None:
    fill(reading.stream, 3)
    reading.connect(start=start)
    reading.read()
    assert len(reading.ids) == (3 if start == "beginning" else 0)
    fill(reading.stream, 100, most=10)  # while nothing reads
    reading.connect(start=start)
    reading.read()
    fill(reading.stream, 5, most=10)
    reading.read()
    fill(reading.stream, 700, most=20)  # while it is connected
    reading.read()

    assert reading.gaps == [(Reason.TRIMMED, 90), (Reason.TRIMMED, 680)]
    assert len(reading.ids) == (3 if start == "beginning" else 0) + 10 + 5 + 20


def test_entries_that_were_trimmed_after_the_group_was_made_and_before_the_first_batch_are_counted(
    reading: Reading,
) -> None:
    fill(reading.stream, 1)
    reading.connect(start="beginning")  # its process ends before it has recorded anything
    fill(reading.stream, 100, most=5)
    reading.connect(start="beginning")
    reading.read()

    assert reading.gaps == [(Reason.TRIMMED, 96)] and len(reading.ids) == 5


def test_entries_that_are_trimmed_while_others_wait_are_counted_at_the_first_batch(reading: Reading) -> None:
    reading.connect()
    fill(reading.stream, 1)
    reading.read()
    fill(reading.stream, 3000, most=1000)
    reading.read(1)

    assert reading.gaps == [(Reason.TRIMMED, 2000)]
    reading.read(5)
    assert len(reading.ids) == 1001 and len(reading.gaps) == 1


def test_entries_of_a_stream_that_is_trimmed_to_nothing_are_counted(reading: Reading) -> None:
    reading.connect()
    fill(reading.stream, 2)
    reading.read()
    fill(reading.stream, 7)
    reading.stream.broker.client.xtrim(reading.stream.broker.stream, maxlen=0, approximate=False)
    reading.connect()
    reading.read()

    assert reading.gaps == [(Reason.TRIMMED, 7)]


def test_entries_trimmed_after_reading_and_entries_not_recorded_are_no_gap(reading: Reading) -> None:
    fill(reading.stream, 5)
    reading.connect()
    reading.read()
    reading.stream.broker.client.xtrim(reading.stream.broker.stream, maxlen=0, approximate=False)
    fill(reading.stream, 4)
    lost = reading.stream.reader(position=reading.position, marks=reading.marks)
    assert len(lost.read(0.05).messages) == 4  # and dies
    lost.close()
    reading.connect()
    fill(reading.stream, 2)
    reading.read()

    assert not reading.gaps
    assert len(reading.ids) == 11


def test_entries_that_were_deleted_before_they_were_delivered_are_counted(reading: Reading) -> None:
    reading.connect()
    reading.read()
    first, _, third = (reading.stream.add(body=str(number)) for number in range(3))
    reading.stream.broker.client.xdel(reading.stream.broker.stream, first, third)
    reading.read()

    assert reading.gaps == [(Reason.TRIMMED, 2)]


def test_a_group_that_was_there_before_wakeful_counted_is_counted_by_the_server(reading: Reading) -> None:
    fill(reading.stream, 3)
    reading.connect()
    reading.read()
    reading.marks = {}  # as a version without them has left it
    fill(reading.stream, 30, most=10)
    reading.connect()
    reading.read()

    assert reading.gaps == [(Reason.TRIMMED, 20)]


def test_a_stream_that_was_made_again_with_ids_of_its_sender_is_read_from_its_beginning(reading: Reading) -> None:
    client, key = reading.stream.broker.client, reading.stream.broker.stream
    fields: Any = {"body": "1"}
    for number in range(1, 6):
        client.xadd(key, fields, id=f"{number}-0")
    reading.connect()
    reading.read()
    client.delete(key)
    for number in range(1, 4):
        client.xadd(key, fields, id=f"{number}-0")
    reading.connect()
    reading.read()
    reading.connect()
    reading.read()

    assert reading.gaps == [(Reason.RECREATED, None)]
    assert len(set(reading.ids)) == 8


def test_a_stream_that_was_made_again_with_more_entries_than_were_read_of_the_first_is_noticed(
    reading: Reading,
) -> None:
    client, key = reading.stream.broker.client, reading.stream.broker.stream
    fill(reading.stream, 5)
    reading.connect()
    reading.read()
    fill(reading.stream, 5)  # are lost
    client.delete(key)
    fill(reading.stream, 9)
    reading.connect()
    reading.read()

    assert reading.gaps == [(Reason.RECREATED, None)]
    assert len(set(reading.ids)) == 14


def test_a_stream_that_was_restored_from_a_copy_has_a_gap_and_is_read_on(reading: Reading) -> None:
    client, key = reading.stream.broker.client, reading.stream.broker.stream
    fill(reading.stream, 4)
    reading.connect()
    reading.read()
    copy: Any = client.dump(key)
    fill(reading.stream, 5)
    reading.read()
    client.restore(key, 0, copy, replace=True)
    fill(reading.stream, 2)
    reading.connect()
    reading.read()
    reading.connect()
    reading.read()

    assert reading.gaps == [(Reason.RESTORED, None)]
    assert len(reading.ids) == 11


def test_a_group_that_is_gone_is_no_gap(reading: Reading) -> None:
    fill(reading.stream, 4)
    reading.connect()
    reading.read()
    reading.stream.broker.client.xgroup_destroy(reading.stream.broker.stream, "wakeful")
    fill(reading.stream, 2)
    reading.connect()
    reading.read()

    assert not reading.gaps
    assert len(reading.ids) == 6


def test_another_stream_in_the_settings_is_another_beginning(reading: Reading) -> None:
    fill(reading.stream, 4)
    reading.connect()
    reading.read()
    reading.stream.broker.stream += "-other"
    client, key = reading.stream.broker.client, reading.stream.broker.stream
    fields: Any = {"body": "1"}
    client.xadd(key, fields, id="1-0")
    reading.connect()
    reading.read()
    client.delete(key)

    assert not reading.gaps
    assert reading.ids[-1] == "1-0"


def test_a_group_that_another_consumer_reads_is_refused(stream: Stream) -> None:
    reader = stream.reader()
    stream.add(body="1")
    stream.broker.client.xreadgroup("wakeful", "another", {stream.broker.stream: ">"})

    with pytest.raises(SourceError, match="consumer another reads in the group wakeful"):
        reader.read(0.1)
    with pytest.raises(SourceError, match="consumer another reads"):
        stream.reader()


def test_an_entry_that_another_consumer_acknowledged_is_a_gap(
    reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_streams, "CLAIM_IDLE", 0.0)
    reading.connect()
    reading.read()
    client, key = reading.stream.broker.client, reading.stream.broker.stream
    id = reading.stream.add(body="1")
    client.xreadgroup("wakeful", "another", {key: ">"})
    client.xack(key, "wakeful", id)
    fill(reading.stream, 2)
    reading.read()

    assert reading.gaps == [(Reason.UNKNOWN, 1)]
    assert len(reading.ids) == 2


def test_the_first_read_of_large_entries_is_bounded(stream: Stream) -> None:
    for _ in range(30):
        stream.add(body="x" * 2**20)

    reader = stream.reader()
    first, second = reader.read(0.1), reader.read(0.1)

    assert len(first.messages) == 10
    assert len(second.messages) <= 8
