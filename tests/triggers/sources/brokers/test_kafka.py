"""Reading topics of librdkafka's mock cluster."""

import json
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from tests.support.brokers import KafkaTopic, Message
from tests.support.examples import some_cases
from triggers.sources.brokers import kafka_client, kafka_reader, kafka_topics
from triggers.sources.brokers.kafka import Kafka
from triggers.sources.brokers.kafka_topics import TopicId
from triggers.sources.continuity import Marks, Reason, compare, dump, load
from triggers.sources.runner import Assignment, Batch, Poison, Reader, Received, SourceError

KIND = Kafka()


class Topic:
    """A topic, and readers of it."""

    def __init__(self, stack: ExitStack) -> None:
        self.broker, self.stack = KafkaTopic(), stack

    def reader(self, *, position: Any = None, marks: Marks | None = None, **changes: Any) -> Reader:
        cleaned = KIND.clean_settings({**self.broker.settings, **changes})
        reader = KIND.connect(Assignment(slug="orders", settings=cleaned, position=position, marks=marks or {}))
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


class Reading:
    """What a source's process does with batches: it keeps position and marks, and finds the gaps."""

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.position: Any = None
        self.marks: Marks = {}
        self.found: list[Any] = []
        self.gaps: list[tuple[str, Reason, int | None]] = []
        self.reader: Any = None

    def connect(self, **changes: Any) -> None:
        self.reader = self.topic.reader(position=self.position, marks=self.marks, **changes)

    def read(self, *, until: int = 0, wait: float = 0.2) -> None:
        """Three batches, and so many messages in all."""
        batches = 0
        while batches < 3 or len(self.found) < until:
            batch = self.reader.read(wait)
            gaps, marks = compare(self.marks, batch.spans)
            self.marks = load(json.loads(json.dumps(dump(marks))))
            self.gaps += [(gap.stream.rpartition("/")[2], gap.reason, gap.count) for gap in gaps]
            self.position = json.loads(json.dumps(batch.position)) or self.position
            self.found += batch.messages
            batches += 1

    @property
    def numbers(self) -> list[int]:
        return sorted(one.payload.data["number"] for one in {one.id: one for one in self.found}.values())


def numbered(*numbers: int) -> list[Message]:
    return [("ada", number) for number in numbers]  # of one partition


@pytest.fixture
def reading(empty: Topic) -> Reading:
    return Reading(empty)


def at_another_cluster(reading: Reading, stack: ExitStack) -> None:
    """A topic of the same name."""
    another = Topic(stack)
    another.broker.topic = reading.topic.broker.topic
    reading.topic = another


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_a_topic_that_was_made_again_and_has_grown_is_read_from_its_beginning(
    reading: Reading, stack: ExitStack
) -> None:
    reading.topic.broker.send(numbered(*range(5)))
    reading.connect()
    reading.read(until=5)
    at_another_cluster(reading, stack)
    reading.topic.broker.send(numbered(*range(100, 110)))
    reading.connect()
    reading.read(until=15)
    reading.connect()
    reading.read()

    assert reading.numbers == [*range(5), *range(100, 110)]
    assert len(reading.found) == 15
    # All of its partitions were made again.
    assert {(reason, count) for _, reason, count in reading.gaps} == {(Reason.RECREATED, None)}
    assert len(reading.gaps) == len(reading.marks)


@pytest.mark.parametrize("length", some_cases([3, 5, 10]))
def test_a_topic_that_is_another_one_at_its_place_is_noticed_by_the_last_recorded_message(
    reading: Reading, stack: ExitStack, monkeypatch: pytest.MonkeyPatch, length: int
) -> None:
    """As after a lost end, or with brokers that say no ids."""
    monkeypatch.setattr(kafka_topics.TopicId, "is_another_than", lambda self, stored: False)
    reading.topic.broker.send(numbered(*range(5)))
    reading.connect()
    reading.read(until=5)
    at_another_cluster(reading, stack)
    reading.topic.broker.send(numbered(*range(100, 100 + length)))
    reading.connect()
    reading.read(until=5 + length)
    reading.connect()
    reading.read()

    assert reading.numbers == [*range(5), *range(100, 100 + length)]
    assert [reason for _, reason, _ in reading.gaps] == [Reason.RESTORED]


def test_the_last_recorded_message_is_no_event_a_second_time(reading: Reading) -> None:
    reading.topic.broker.send(numbered(*range(5)))
    reading.connect()
    reading.read(until=5)
    for number in (5, 6):
        reading.connect()
        reading.topic.broker.send(numbered(number))
        reading.read(until=number + 1)

    assert [one.payload.data["number"] for one in reading.found] == list(range(7))
    assert not reading.gaps


def test_messages_that_kafka_deletes_before_they_are_read_are_a_gap(reading: Reading) -> None:
    """The mock cluster keeps about 5 MB of a partition."""
    reading.topic.broker.send(numbered(0))
    reading.connect()
    reading.read(until=1)
    padding = "x" * 2**18
    for number in range(1, 61):
        body = json.dumps({"number": number, "padding": padding})
        reading.topic.broker.put(body.encode(), key="ada")
        reading.topic.broker.producer.flush()
    reading.connect()
    reading.read()
    while reading.numbers[-1] < 60:
        reading.read()

    [(_, reason, count)] = reading.gaps
    assert reason == Reason.TRIMMED
    assert reading.numbers == [0, *range(1 + (count or 0), 61)]


def test_a_topic_that_is_added_begins_at_start(reading: Reading) -> None:
    reading.topic.broker.send(numbered(1))
    reading.connect(start="new")
    reading.read()
    first = reading.topic.broker.topic
    reading.topic.broker.topic = other = f"{first}-other"
    reading.topic.broker.send(numbered(*range(50)))

    reading.connect(start="new", topics=f"{first},{other}")
    reading.read()
    reading.topic.broker.send(numbered(50))
    reading.read(until=1)

    assert reading.numbers == [50]
    assert not reading.gaps


class Described:
    """A client for administration whose brokers give topics ids."""

    ids: ClassVar[dict[str, str]] = {}

    def __init__(self, *configured: Any, **named: Any) -> None: ...

    def describe_topics(self, topics: Any, **named: Any) -> dict[str, Future[Any]]:
        answers: dict[str, Future[Any]] = {}
        for topic, id in self.ids.items():
            answers[topic] = Future()
            answers[topic].set_result(SimpleNamespace(topic_id=id))
        return answers


def test_a_topic_of_another_id_is_read_from_its_beginning_also_while_it_is_read(
    reading: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mock cluster deletes no topics: only its id is another one."""
    monkeypatch.setattr(kafka_reader, "PARTITIONS_EVERY", 0.0)
    monkeypatch.setattr(
        kafka_client.KafkaClient,
        "_ids",
        lambda self, topic: kafka_topics.ids_of(self.library, Described(), [topic], timeout=1),
    )
    monkeypatch.setattr(kafka_client.KafkaClient, "_has_controller", lambda self, metadata: True)
    Described.ids = {reading.topic.broker.topic: "first"}
    reading.topic.broker.send(numbered(*range(5)))
    reading.connect()
    reading.read(until=5)
    assert not reading.gaps

    Described.ids = {reading.topic.broker.topic: "second"}
    reading.read(until=10)

    assert len(reading.found) == 10
    assert {reason for _, reason, _ in reading.gaps} == {Reason.RECREATED}
    Described.ids = {}  # a broker that does not answer
    reading.read()
    reading.connect()
    reading.read()
    assert len(reading.found) == 10


@pytest.mark.parametrize(
    ("mine", "stored", "is_another"),
    [
        (("c", "a"), ("c", "a"), False),
        (("c", "a"), ("c", "b"), True),
        (("d", ""), ("c", ""), True),
        (("c", ""), ("c", "a"), False),
        (("", "a"), ("c", "a"), False),
    ],
)
def test_topics_are_compared_by_what_is_known_of_both(
    mine: tuple[str, str], stored: tuple[str, str], is_another: bool
) -> None:
    now, before = (TopicId(cluster=cluster, topic=topic) for cluster, topic in (mine, stored))

    assert now.is_another_than(before) is is_another
