"""What a broker loses before it is read is reported: each message that was sent is an event, or lies in a gap. The broker trims its stream,
makes it again or is restored from a copy, under load, while the process that reads it is killed again and again."""

import json
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_brokers import add_source
from tests.support.brokers import KafkaTopic, Message, RedisStream, TestBroker, body_of
from tests.support.nats_server import NatsStream, nats_server
from tests.support.points import Points
from tests.support.stack import Process, Stack, StackMaker, dead, eventually
from triggers.models import Source

pytestmark = pytest.mark.chaos

ROUND = 1500  # messages, of which the broker keeps a part
KEPT = 200
DEATHS = ("source_fenced", "source_recorded", "source_fenced")


class ShortRedisStream(RedisStream):
    """Whose sender keeps the last ones alone."""

    def send(self, messages: Sequence[Message]) -> None:
        with self.client.pipeline(transaction=False) as pipeline:
            for message in messages:
                fields: Any = {"key": message[0], "body": body_of(message)}
                pipeline.xadd(self.stream, fields, maxlen=KEPT, approximate=False)
            pipeline.execute()


class ShortKafkaTopic(KafkaTopic):
    """The mock cluster keeps about 5 MB of each of its four partitions."""

    def send(self, messages: Sequence[Message]) -> None:
        for message in messages:
            body = {**json.loads(body_of(message)), "padding": "x" * 30_000}
            self.put(json.dumps(body).encode(), key=message[0])
            if message[1] % 100 == 99:
                self.producer.flush()
        self.producer.flush()


Make = Callable[[str, Stack], TestBroker]


@pytest.fixture
def make_broker(tmp_path: Path) -> Iterator[Make]:
    with ExitStack() as servers:

        def make(name: str, stack: Stack) -> TestBroker:
            match name:
                case "kafka":
                    return ShortKafkaTopic()
                case "nats":
                    return NatsStream(servers.enter_context(nats_server(tmp_path)), most=KEPT)
            return ShortRedisStream(stack.redis_url)

        yield make


def messages(first: int, count: int) -> list[Message]:
    return [(f"key-{number % 10}", number) for number in range(first, first + count)]


def numbers(stack: Stack) -> list[int]:
    rows = stack.query("SELECT data->'number' AS number FROM triggers_event WHERE type = 'message.received'")
    return sorted(row["number"] for row in rows)


def gaps(stack: Stack) -> list[dict[str, Any]]:
    return list(stack.query("SELECT stream, reason, count FROM triggers_sourcegap ORDER BY id"))


def lost_unconfirmed(stack: Stack) -> int:
    """Entries of Redis that were delivered, and trimmed before their event was recorded: each is listed by its id."""
    [row] = stack.query(
        "SELECT count(*) FROM triggers_poisonmessage WHERE message_id NOT IN (SELECT ce_id FROM triggers_event)"
    )
    return int(row["count"])


def said_gaps_are_events(stack: Stack) -> bool:
    [row] = stack.query("SELECT count(*) FROM triggers_event WHERE type = 'wakeful.source.gap'")
    return int(row["count"]) == len(gaps(stack))


class Readers:
    """Two processes that read, and are killed at named points."""

    def __init__(self, stack: Stack, points: Points) -> None:
        self.points = points
        stack.start("dispatcher")
        self.processes: list[Process] = [stack.start("sources"), stack.start("sources")]

    def die_at(self, point: str, work: Callable[[], Any]) -> None:
        """While the work goes on."""
        with ThreadPoolExecutor(1) as worker:
            self.points.arm(point, "kill")
            done = worker.submit(work)
            eventually(lambda: dead(self.processes))
            done.result()

    def come_back(self) -> None:
        self.points.release_all()
        for process in dead(self.processes):
            process.restart(wait=False)

    def kill(self) -> None:
        for process in self.processes:
            if process.is_alive():
                process.kill()


@pytest.mark.parametrize("name", ["redis_streams", "kafka", "nats"])
def test_each_message_of_a_trimmed_stream_is_an_event_or_counted_in_a_gap(
    name: str, make_stack: StackMaker, tmp_path: Path, make_broker: Make
) -> None:
    points = Points(tmp_path / "points")
    stack = make_stack(env=points.env)
    broker = make_broker(name, stack)
    add_source(stack, broker)
    readers = Readers(stack, points)
    sent = 0
    broker.send(messages(0, 50))
    eventually(lambda: len(numbers(stack)) == 50)
    for point in DEATHS:
        first = 50 + sent
        readers.die_at(point, lambda first=first: broker.send(messages(first, ROUND)))  # type: ignore[misc]
        readers.kill()
        broker.send(messages(50 + sent + ROUND, ROUND))
        sent += 2 * ROUND
        readers.come_back()
    sent += 50

    eventually(lambda: len(numbers(stack)) + sum(gap["count"] for gap in gaps(stack)) + lost_unconfirmed(stack) == sent)
    found = numbers(stack)
    assert len(set(found)) == len(found) < sent
    assert {gap["reason"] for gap in gaps(stack)} == {"trimmed"}
    assert said_gaps_are_events(stack)


@pytest.mark.parametrize("name", ["redis_streams", "kafka", "nats"])
def test_a_stream_that_is_made_again_is_read_whole_and_the_loss_of_the_first_one_is_a_gap(
    name: str, make_stack: StackMaker, tmp_path: Path, make_broker: Make
) -> None:
    points = Points(tmp_path / "points")
    stack = make_stack(env=points.env)
    broker = make_broker(name, stack)
    source = add_source(stack, broker)
    readers = Readers(stack, points)
    broker.send(messages(0, 150))
    eventually(lambda: len(numbers(stack)) == 150)

    readers.die_at("source_fenced", lambda: broker.send(messages(150, 150)))
    readers.kill()
    broker = made_again(broker, stack, source)
    broker.send(messages(1000, 180))
    readers.come_back()

    eventually(lambda: set(numbers(stack)) >= set(range(1000, 1180)))
    eventually(lambda: "recreated" in {gap["reason"] for gap in gaps(stack)})
    found = numbers(stack)
    assert len(set(found)) == len(found)
    assert said_gaps_are_events(stack)


def made_again(broker: TestBroker, stack: Stack, source: Source) -> TestBroker:
    """A stream of the same name; of Kafka, in another cluster, because the mock cluster deletes no topics."""
    match broker:
        case RedisStream():
            broker.client.delete(broker.stream)
        case NatsStream():
            broker.delete()
            broker.make()
        case KafkaTopic():
            again = ShortKafkaTopic()
            again.topic = broker.topic
            with stack.orm():
                Source.objects.filter(pk=source.pk).update(settings=again.settings)
            return again
    return broker


def test_a_stream_of_redis_that_is_restored_from_a_copy_is_read_on_and_has_a_gap(
    make_stack: StackMaker, tmp_path: Path
) -> None:
    points = Points(tmp_path / "points")
    stack = make_stack(env=points.env)
    broker = RedisStream(stack.redis_url)
    add_source(stack, broker)
    readers = Readers(stack, points)
    broker.send(messages(0, 500))
    eventually(lambda: len(numbers(stack)) == 500)
    copy: Any = broker.client.dump(broker.stream)

    readers.die_at("source_recorded", lambda: broker.send(messages(500, 500)))
    readers.kill()
    broker.client.restore(broker.stream, 0, copy, replace=True)
    broker.send(messages(2000, 500))
    readers.come_back()

    eventually(lambda: set(numbers(stack)) >= {*range(500), *range(2000, 2500)})
    eventually(lambda: "restored" in {gap["reason"] for gap in gaps(stack)})
    assert len(set(numbers(stack))) == len(numbers(stack))
    assert said_gaps_are_events(stack)


@pytest.mark.parametrize("count", [300, 900])
def test_a_stream_of_nats_that_is_restored_from_a_copy_is_read_on_and_has_a_gap(
    make_stack: StackMaker, tmp_path: Path, count: int
) -> None:
    """With fewer new messages than were lost, and with more."""
    points = Points(tmp_path / "points")
    stack = make_stack(env=points.env)
    port = 0
    with nats_server(tmp_path) as server:
        stream, port = NatsStream(server), server.port
        add_source(stack, stream)
        readers = Readers(stack, points)
        stream.send(messages(0, 500))
        eventually(lambda: len(numbers(stack)) == 500)
        server.signal(signal.SIGTERM)
        server.process.wait()
    shutil.copytree(tmp_path / "jetstream", tmp_path / "copy")
    with nats_server(tmp_path, port=port) as server:
        readers.die_at("source_recorded", lambda: stream.send(messages(500, 500)))
        readers.come_back()
        eventually(lambda: len(numbers(stack)) == 1000)
        server.signal(signal.SIGTERM)
        server.process.wait()
    shutil.rmtree(tmp_path / "jetstream")
    shutil.copytree(tmp_path / "copy", tmp_path / "jetstream")
    with nats_server(tmp_path, port=port) as server:
        stream.send(messages(2000, count))

        eventually(lambda: set(numbers(stack)) == {*range(1000), *range(2000, 2000 + count)})
    eventually(lambda: "restored" in {gap["reason"] for gap in gaps(stack)})
    assert len(set(numbers(stack))) == len(numbers(stack))
    assert said_gaps_are_events(stack)
