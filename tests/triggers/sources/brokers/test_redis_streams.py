"""Reading a stream of a real Valkey."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import redis
from django.conf import settings

from tests.support.brokers import RedisStream
from triggers.sources.brokers import redis_streams
from triggers.sources.brokers.redis_streams import RedisStreams
from triggers.sources.runner import Assignment, Batch, Poison, Reader, Received, SourceError
from triggers.sources.settings import InvalidSettings

KIND = RedisStreams()


class Stream:
    """A stream, and readers of it."""

    def __init__(self, broker: RedisStream, stack: ExitStack) -> None:
        self.broker, self.stack = broker, stack

    def reader(self, *, position: Any = None, **changes: Any) -> Reader:
        cleaned = KIND.clean_settings({**self.broker.settings, **changes})
        reader = KIND.connect(Assignment(slug="orders", settings=cleaned, secret=self.broker.secret, position=position))
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

    taken = reader.read(0.1)
    reader.confirm(taken)

    assert ids(taken) == [left]
    assert stream.broker.unconfirmed() == 0


def test_an_entry_that_was_trimmed_before_it_was_confirmed_is_said_to_be_lost(stream: Stream) -> None:
    id = stream.add(body="1")
    stream.reader().read(0.1)
    stream.broker.client.xtrim(stream.broker.stream, maxlen=0, approximate=False)

    reader = stream.reader()
    again = reader.read(0.1)
    reader.confirm(again)

    [message] = again.messages
    assert isinstance(message, Poison) and message.id == id and "deleted from the stream" in message.reason
    assert not reader.read(0.1).messages


def test_an_entry_that_another_consumer_left_and_that_was_trimmed_is_said_to_be_lost(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_streams, "CLAIM_IDLE", 0.0)
    reader, left = stream.reader(), stream.add(body="1")
    stream.broker.client.xreadgroup("wakeful", "gone", {stream.broker.stream: ">"})
    stream.broker.client.xtrim(stream.broker.stream, maxlen=0, approximate=False)

    taken = reader.read(0.1)
    reader.confirm(taken)

    [message] = taken.messages
    assert isinstance(message, Poison) and message.id == left and "deleted from the stream" in message.reason


def test_a_group_that_is_gone_begins_again_behind_the_last_recorded_entry(stream: Stream) -> None:
    first, second = stream.add(body="1"), stream.add(body="2")
    reader = stream.reader()
    stream.broker.client.xgroup_destroy(stream.broker.stream, "wakeful")
    with pytest.raises(redis.ResponseError, match="NOGROUP"):
        reader.read(0.1)

    assert ids(stream.reader(position=first).read(0.1)) == [second]


def test_a_new_group_begins_with_new_entries_unless_told_otherwise(stream: Stream) -> None:
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
    ("field", "value", "said"),
    [
        ("url", "redis://user:password@host/0", "enter it as the source's secret"),
        ("url", "http://host", "rediss://"),
        ("url", "redis://[", "must be an address"),
        ("stream", " ", "is required"),
    ],
)
def test_settings_that_cannot_work_are_named(field: str, value: str, said: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        KIND.clean_settings({"url": "redis://host/0", "stream": "orders", field: value})

    assert said in caught.value.errors[field]
