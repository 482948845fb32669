"""Each message of a broker is one event, in the order of its key, while the process that reads it is killed again and again."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.brokers import KafkaTopic, Message, RedisStream, SqsQueue, TestBroker, moto_server
from tests.support.nats_server import NatsStream, nats_server
from tests.support.points import Points
from tests.support.rabbitmq import QUORUM, AmqpQueue, rabbitmq
from tests.support.stack import Stack, StackMaker, dead, eventually
from triggers.models import Source
from triggers.sources.edit import create_source
from triggers.sources.secrets import add_secret

pytestmark = pytest.mark.chaos

KEYS = 100


def messages(each: int) -> list[Message]:
    return [(f"key-{key}", number) for number in range(each) for key in range(KEYS)]


MESSAGES = messages(100)
# In turn: in the transaction that records a batch, and between its commit and the confirmation.
DEATHS = ("source_fenced", "source_recorded", "source_fenced", "source_recorded", "source_fenced")


# Fewer in SQS FIFO: moto takes several milliseconds for each.
BROKERS = ["redis_streams", "kafka", "nats", "rabbitmq_classic", "rabbitmq_quorum", "sqs_fifo", "sqs_standard"]
IN_ORDER = [name for name in BROKERS if name != "sqs_standard"]  # which promises none


def add_source(stack: Stack, broker: TestBroker, slug: str = "orders") -> Source:
    with stack.orm():
        source = create_source(slug, kind=broker.kind, settings=broker.settings, by="test")
        if broker.secret:
            add_secret(source, broker.secret, by="test")
    return source


def count(stack: Stack) -> int:
    return int(stack.query("SELECT count(*) FROM triggers_event")[0]["count"])


def read_in_order(stack: Stack) -> list[Message]:
    rows = stack.query("SELECT subject, data FROM triggers_event ORDER BY seq")
    assert all(row["subject"] == row["data"]["key"] for row in rows)
    return [(row["subject"], row["data"]["number"]) for row in rows]


@pytest.mark.parametrize("name", BROKERS)
def test_each_message_is_one_event_in_order_while_the_runner_is_killed(
    name: str, make_stack: StackMaker, tmp_path: Path, make_broker: Callable[[str, Stack], TestBroker]
) -> None:
    points = Points(tmp_path / "points")
    stack = make_stack(env=points.env)
    broker = make_broker(name, stack)
    add_source(stack, broker)
    stack.start("dispatcher")
    runners = [stack.start("sources"), stack.start("sources")]

    each = 20 if name == "sqs_fifo" else 100
    sent = messages(each)
    part = len(sent) // len(DEATHS)
    with ThreadPoolExecutor(1) as sender:
        for number, point in enumerate(DEATHS):
            points.arm(point, "kill@2")
            sending = sender.submit(broker.send, sent[number * part : (number + 1) * part])
            eventually(lambda: dead(runners))
            points.release_all()
            for process in dead(runners):
                process.restart(wait=False)
            sending.result()

    eventually(lambda: count(stack) >= len(sent))
    for process in runners:
        process.stop()  # so that the broker takes back what is not confirmed
    eventually(lambda: broker.unconfirmed() == 0)
    found = read_in_order(stack)
    assert sorted(found) == sorted(sent)
    if name in IN_ORDER:
        for key in range(KEYS):
            assert [number for subject, number in found if subject == f"key-{key}"] == list(range(each))


# Quorum queues know no exclusive consumers, and the frozen one has messages that none has confirmed.
@pytest.mark.parametrize("name", ["redis_streams", "rabbitmq_quorum"])
def test_a_frozen_runner_is_replaced_and_records_nothing_when_it_wakes_up(
    name: str, make_stack: StackMaker, tmp_path: Path, make_broker: Callable[[str, Stack], TestBroker]
) -> None:
    points = Points(tmp_path / "points")
    stack = make_stack(env=points.env)
    broker = make_broker(name, stack)
    add_source(stack, broker)
    stack.start("dispatcher")
    processes = {process.pid: process for process in (stack.start("sources"), stack.start("sources"))}
    points.arm("source_fenced", "stop")
    broker.send(MESSAGES[:2000])

    frozen = processes[eventually(lambda: points.hit("source_fenced"))]
    eventually(lambda: count(stack) == 2000)
    frozen.freeze()
    frozen.thaw()
    broker.send(MESSAGES[2000:3000])
    eventually(lambda: count(stack) == 3000)
    eventually(lambda: broker.unconfirmed() == 0)

    assert read_in_order(stack) == MESSAGES[:3000]
    assert frozen.is_alive()


@pytest.fixture
def make_broker(tmp_path: Path) -> Iterator[Callable[[str, Stack], TestBroker]]:
    with ExitStack() as servers:

        def make(name: str, stack: Stack) -> TestBroker:
            match name:
                case "sqs_fifo" | "sqs_standard":
                    address = servers.enter_context(moto_server())
                    return SqsQueue(address, is_fifo=name == "sqs_fifo", visibility=10)
                case "kafka":
                    return KafkaTopic()
                case "nats":
                    return NatsStream(servers.enter_context(nats_server(tmp_path)))
                case "rabbitmq_classic" | "rabbitmq_quorum":
                    server = servers.enter_context(rabbitmq(tmp_path))
                    return AmqpQueue(server, QUORUM if name == "rabbitmq_quorum" else {})
            return RedisStream(stack.redis_url)

        yield make
