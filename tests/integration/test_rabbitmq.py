"""Reading queues of a real RabbitMQ."""

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import amqp
import pytest

from tests.support.brokers import Message
from tests.support.certificates import certificate_of
from tests.support.rabbitmq import QUORUM, SINGLE_ACTIVE, AmqpQueue, RabbitServer, rabbitmq
from tests.support.stack import eventually
from triggers.sources.brokers import amqp as kind
from triggers.sources.brokers.amqp import Amqp
from triggers.sources.runner import Assignment, Batch, Poison, Reader, Received, SourceError

pytestmark = pytest.mark.chaos

KIND = Amqp()
TYPES = pytest.mark.parametrize(
    "arguments",
    [{}, QUORUM, SINGLE_ACTIVE, QUORUM | SINGLE_ACTIVE],
    ids=["classic", "quorum", "single-active-classic", "single-active-quorum"],
)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificate_of("127.0.0.1", tmp_path_factory.mktemp("certificate"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, certificate: Path) -> Iterator[RabbitServer]:
    with rabbitmq(tmp_path_factory.mktemp("rabbitmq"), certificate) as server:
        yield server


class Readers:
    """Readers of queues, which are closed at the end."""

    def __init__(self, stack: ExitStack) -> None:
        self.stack = stack

    def of(self, broker: AmqpQueue, /, *, secret: str = "", **changes: Any) -> Reader:
        cleaned = KIND.clean_settings({**broker.settings, **changes})
        reader = KIND.connect(Assignment(slug="orders", settings=cleaned, secret=secret or broker.secret))
        self.stack.callback(reader.close)
        return reader


@pytest.fixture
def readers() -> Iterator[Readers]:
    with ExitStack() as stack:
        yield Readers(stack)


def read(reader: Reader, count: int) -> list[Message]:
    """So many messages, confirmed."""
    found: list[Any] = []
    while len(found) < count:
        batch = reader.read(1)
        found += batch.messages
        if batch.messages:
            reader.confirm(batch)
    return messages_of(found)


def messages_of(found: Any) -> list[Message]:
    assert all(isinstance(message, Received) for message in found)
    return [(message.subject, message.payload.data["number"]) for message in found]


NUMBERED: list[Message] = [("ada", number) for number in range(1200)]


@TYPES
def test_messages_are_read_in_order_and_confirmed(
    server: RabbitServer, readers: Readers, arguments: dict[str, Any]
) -> None:
    queue = AmqpQueue(server, arguments)
    queue.send(NUMBERED)

    assert read(readers.of(queue), len(NUMBERED)) == NUMBERED

    assert queue.unconfirmed() == 0


@TYPES
def test_unconfirmed_messages_come_again_first(
    server: RabbitServer, readers: Readers, arguments: dict[str, Any]
) -> None:
    queue = AmqpQueue(server, arguments)
    queue.send(NUMBERED)
    first = readers.of(queue)
    seen: Batch = first.read(1)
    first.close()

    assert read(readers.of(queue), len(NUMBERED)) == NUMBERED
    assert messages_of(seen.messages) == NUMBERED[: len(seen.messages)]


@TYPES
def test_a_queue_that_another_consumer_reads_is_refused(
    server: RabbitServer, readers: Readers, arguments: dict[str, Any]
) -> None:
    queue = AmqpQueue(server, arguments)
    first = readers.of(queue)

    with pytest.raises(SourceError, match="Another consumer"):
        readers.of(queue)

    queue.send(NUMBERED[:3])
    assert read(first, 3) == NUMBERED[:3]


def test_messages_that_wait_at_the_broker_are_the_lag(server: RabbitServer, readers: Readers) -> None:
    queue = AmqpQueue(server)
    queue.send(NUMBERED)
    eventually(lambda: queue.unconfirmed() == len(NUMBERED))

    batch = readers.of(queue).read(1)

    assert batch.lag is not None and batch.lag + len(batch.messages) == len(NUMBERED)


def waiting(reader: Reader, queue: AmqpQueue) -> int:
    """Messages at the broker, after a while of the reader in which nothing is read."""
    reader.stay()
    return queue.unconfirmed()


def test_unrecorded_messages_go_back_to_the_queue(
    server: RabbitServer, readers: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = AmqpQueue(server)
    reader = readers.of(queue)
    queue.send(NUMBERED[:3])
    eventually(lambda: waiting(reader, queue) == 0)
    monkeypatch.setattr(kind, "GIVE_BACK_AFTER", 0.0)

    eventually(lambda: waiting(reader, queue) == 3)

    assert read(reader, 3) == NUMBERED[:3]


def test_a_message_that_the_client_cannot_decode_is_poison_and_stops_no_other(
    server: RabbitServer, readers: Readers
) -> None:
    queue = AmqpQueue(server)
    queue.send(NUMBERED[:2])
    queue.put("{}", message_id=b"\xff")  # no UTF-8
    queue.send(NUMBERED[2:4])
    reader = readers.of(queue)

    found: list[Any] = []
    while len(found) < 5:
        batch = reader.read(1)
        found += batch.messages
        if batch.messages:
            reader.confirm(batch)

    [poison] = [message for message in found if isinstance(message, Poison)]
    assert "not readable" in poison.reason
    assert messages_of([message for message in found if message is not poison]) == NUMBERED[:4]
    eventually(lambda: queue.unconfirmed() == 0)


def test_a_queue_that_does_not_exist_and_a_refused_user_have_remedies(server: RabbitServer, readers: Readers) -> None:
    queue = AmqpQueue(server)
    with pytest.raises(SourceError, match="does not exist"):
        readers.of(queue, queue="missing")
    with pytest.raises(SourceError, match="refuses access"):
        readers.of(queue, secret="wrong")


def test_a_queue_that_is_deleted_is_an_error(server: RabbitServer, readers: Readers) -> None:
    queue = AmqpQueue(server)
    reader = readers.of(queue)
    queue.channel.queue_delete(queue.queue)

    with pytest.raises(amqp.AMQPError):
        eventually(lambda: reader.read(0.1).messages)


def test_a_certificate_is_verified(
    server: RabbitServer, readers: Readers, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = AmqpQueue(server)
    queue.send(NUMBERED[:3])
    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        readers.of(queue, url=server.tls_url)

    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert read(readers.of(queue, url=server.tls_url), 3) == NUMBERED[:3]
    with pytest.raises(OSError, match="(?i)mismatch|not valid"):
        readers.of(queue, url=server.tls_url.replace("127.0.0.1", "localhost"))


def test_a_broker_that_freezes_is_an_error(
    server: RabbitServer, readers: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, "HEARTBEAT", 1)
    monkeypatch.setattr(kind, "ANSWER_TIMEOUT", 1.0)
    queue = AmqpQueue(server)
    reader = readers.of(queue)
    server.signal(signal.SIGSTOP)
    try:
        with pytest.raises((SourceError, amqp.AMQPError)):
            eventually(lambda: reader.read(0.1).messages)
        with pytest.raises(SourceError, match="does not answer"):
            readers.of(queue)
    finally:
        server.signal(signal.SIGCONT)
    queue.send(NUMBERED[:3])
    eventually(lambda: queue.unconfirmed() == 3)
    assert read(readers.of(queue), 3) == NUMBERED[:3]
