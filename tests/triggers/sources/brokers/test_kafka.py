"""Reading topics of librdkafka's mock cluster."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.support.brokers import KafkaTopic
from triggers.sources.brokers.kafka import Kafka
from triggers.sources.runner import Assignment, Batch, Poison, Reader, Received, SourceError

KIND = Kafka()


class Topic:
    """A topic, and readers of it."""

    def __init__(self, stack: ExitStack) -> None:
        self.broker, self.stack = KafkaTopic(), stack

    def reader(self, *, position: Any = None, **changes: Any) -> Reader:
        cleaned = KIND.clean_settings({**self.broker.settings, **changes})
        reader = KIND.connect(Assignment(slug="orders", settings=cleaned, position=position))
        self.stack.callback(reader.close)
        return reader

    def read(self, reader: Reader, count: int) -> tuple[list[Received | Poison], Any]:
        """So many messages, and the position after them."""
        found: list[Received | Poison] = []
        position = None
        while len(found) < count:
            batch = reader.read(5.0)
            found += batch.messages
            position = batch.position or position
            if batch.receipt:
                reader.confirm(batch)
        return found, position


@pytest.fixture(scope="module")
def topic() -> Iterator[Topic]:
    with ExitStack() as stack:
        yield Topic(stack)


@pytest.fixture
def empty(topic: Topic) -> Topic:
    """With a topic of its own on the same cluster."""
    topic.broker.topic += "x"
    return topic


def test_messages_are_read_in_the_order_of_their_key_and_again_from_a_position(empty: Topic) -> None:
    empty.broker.send([(f"key-{number % 3}", number) for number in range(9)])
    first, position = empty.read(empty.reader(), 9)

    empty.broker.send([("key-0", 9)])
    then, _ = empty.read(empty.reader(position=position), 1)
    again, _ = empty.read(empty.reader(group="another"), 10)

    for key in range(3):
        of_key = [
            one.payload.data["number"] for one in first if isinstance(one, Received) and one.subject == f"key-{key}"
        ]
        assert of_key == [number for number in range(9) if number % 3 == key]
    assert {one.id for one in again} == {one.id for one in [*first, *then]}
    assert len({one.id for one in again}) == 10


def test_a_group_that_has_committed_is_gone_on_with(empty: Topic) -> None:
    empty.broker.send([("ada", 1)])
    reader = empty.reader(group=empty.broker.topic)
    empty.read(reader, 1)
    reader.close()
    empty.broker.send([("ada", 2)])

    [message], _ = empty.read(empty.reader(group=empty.broker.topic), 1)

    assert isinstance(message, Received) and message.payload.data["number"] == 2


def test_a_new_source_begins_with_new_messages_and_keeps_that_place(empty: Topic) -> None:
    empty.broker.send([("ada", 1)])
    first: Batch = empty.reader(start="new").read(0.1)
    assert not first.messages and first.position
    empty.broker.send([("ada", 2)])

    [message], _ = empty.read(empty.reader(start="new", position=first.position), 1)

    assert isinstance(message, Received) and message.payload.data["number"] == 2


def test_cloudevents_are_read_structured_and_binary(empty: Topic) -> None:
    attributes = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "order.placed"}
    structured = json.dumps({**attributes, "data": {"order": 7}}).encode()
    binary = {
        **{f"ce_{name}": value for name, value in attributes.items()},
        "ce_id": "2 %ü",
        "content-type": "application/json",
    }
    empty.broker.put(structured, key="ada", headers={"content-type": "application/cloudevents+json"})
    empty.broker.put(b'{"order": 8}', key="ada", headers=binary)
    empty.broker.put(b"plain", key="ada")
    empty.broker.producer.flush()

    found, _ = empty.read(empty.reader(format="cloudevents"), 3)

    first, second, third = found
    assert isinstance(first, Received) and isinstance(second, Received)
    assert (first.origin, first.id, first.type, first.subject) == ("/shop", "1", "order.placed", "ada")
    assert (second.id, second.payload.data) == ("2 %ü", {"order": 8})
    assert isinstance(third, Poison) and third.reason.startswith("no CloudEvent")


def test_an_unknown_topic_is_an_error_with_a_remedy(topic: Topic) -> None:
    with pytest.raises(SourceError) as caught:
        topic.reader(topics="no such topic!")

    assert "no such topic!" in str(caught.value)
    assert caught.value.remedy
