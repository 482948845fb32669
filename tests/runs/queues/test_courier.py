"""What talks to the broker has a thread of its own; a broker that refuses or hangs is tried seldom, and logged once."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from celery import current_app
from django.db import connection
from kombu import Connection

from config.health.problems import problems
from config.health.situation import read_situation
from runs.models import Delivery, Worker
from runs.network import broker
from runs.network.sending import BLOCKED
from runs.processes.lease import Presence, Trouble
from runs.queues import courier, doorbell
from runs.queues.courier import Couriers, Messenger, Notifier, Ringer
from tests.support.notifying import delivered, make_due, make_recipient, notify
from tests.support.stack import eventually

pytestmark = pytest.mark.django_db(transaction=True, serialized_rollback=True)

CLOSED_PORT = "redis://127.0.0.1:1/0"
WANTED = [doorbell.Wanted(queue="default", bound=2, claimable=1)]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "breaker", broker.closed_breaker())


@pytest.fixture
def dial(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Talk to the broker at this address."""

    def at(url: str) -> None:
        options = {"ack_emulation": False, "socket_timeout": broker.ANSWER, "socket_connect_timeout": broker.CONNECT}
        found: Connection = current_app.connection_for_write(url)
        monkeypatch.setattr(broker, "connection", lambda: found.clone(transport_options=options))

    return at


@pytest.fixture
def hung() -> Iterator[str]:
    """The address of a broker that accepts and does not answer, as a stopped process does."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(50)
        yield f"redis://127.0.0.1:{listening.getsockname()[1]}/0"


def test_a_broker_that_hangs_costs_one_short_wait_and_then_none(dial: Callable[[str], None], hung: str) -> None:
    dial(hung)

    started = time.monotonic()
    assert not doorbell.publish(WANTED)
    assert time.monotonic() - started < 9  # ten seconds were lost here
    attempts = []
    for _ in range(1000):
        with pytest.raises(broker.BrokerAway), broker.producer():
            attempts.append(1)
        if broker.breaker.retry_in < 0.1:
            break
    assert attempts == []


def test_pauses_grow_and_an_opening_is_logged_once(dial: Callable[[str], None], caplog: Any) -> None:
    dial(CLOSED_PORT)
    broker.breaker.clock = lambda: 100.0
    pauses = []

    for _ in range(8):
        broker.breaker.retry_at = 0.0
        assert not doorbell.publish(WANTED)
        pauses.append(broker.breaker.retry_in)

    assert pauses == [0.5, 1, 2, 4, 8, 15, 15, 15]
    assert sum("broker.away" in record.getMessage() for record in caplog.records) == 1


def test_a_broker_that_comes_back_is_taken_again(dial: Callable[[str], None], servers: Any) -> None:
    dial(CLOSED_PORT)
    assert not doorbell.publish(WANTED)
    assert broker.breaker.is_open

    broker.breaker.retry_at = 0.0
    dial(servers.redis_url)
    broker.ask()

    assert not broker.breaker.is_open
    assert broker.breaker.retry_in == 0


class Hurt(Exception):
    pass


class Restless(Messenger):
    name_of = "restless"

    def __init__(self, errand: Callable[[], float]) -> None:
        super().__init__()
        self.errand = errand  # type: ignore[method-assign]


def test_a_courier_outlives_every_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(courier, "AGAIN", 0.01)
    done: list[str] = []

    def errand() -> float:
        done.append("tried")
        if len(done) == 1:
            raise Hurt
        if len(done) == 2:
            connection.cursor().execute("SELECT nothing")
        connection.close()
        return courier.NEVER

    restless = Restless(errand)
    restless.start()
    restless.send()

    eventually(lambda: len(done) == 3)
    assert restless.is_alive()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_courier_that_died_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(courier.Courier, "_open_session", lambda self: None)  # which it would keep for its life
    couriers = Couriers()
    gone = threading.Event()

    def die() -> float:
        connection.close()
        gone.set()
        raise SystemExit

    couriers.messenger = Restless(die)
    couriers.messenger.start()
    couriers.messenger.send()
    gone.wait(60)
    couriers.messenger.join(60)

    couriers.watch()

    assert couriers.messenger.is_alive() and couriers.ringer.is_alive()
    eventually(
        lambda: all(
            one.left_at is None and one.go_at == courier.NEVER
            for one in (couriers.ringer, couriers.messenger, couriers.notifier)
        )
    )


def test_a_courier_that_hangs_and_a_broker_that_is_away_are_problems_until_they_end() -> None:
    ringer, presence = Ringer(), Presence(Worker.Kind.DISPATCHER)
    ringer.left_at = time.monotonic() - 100
    broker.breaker.failed("refused")
    broker.breaker.opened_at = time.monotonic() - 90

    presence.renew(ringer.troubles)

    found = {problem.name: problem for problem in problems(read_situation())}
    assert {"stuck:ringer", "broker-away"} <= set(found)
    assert found["broker-away"].is_alarm and "refused" in found["broker-away"].text
    assert 80 < found["broker-away"].lasted.total_seconds() < 100

    ringer.left_at = None
    broker.breaker.succeeded()
    presence.renew(ringer.troubles)
    assert not {"stuck:ringer", "broker-away"} & {problem.name for problem in problems(read_situation())}


def test_a_trouble_is_written_when_it_comes_and_goes_not_at_each_look(django_assert_num_queries: Any) -> None:
    presence, trouble = Presence(Worker.Kind.DISPATCHER), {"broker-away": Trouble(lasted=1, error="refused")}
    presence.renew(trouble)

    with django_assert_num_queries(0):
        presence.renew({"broker-away": Trouble(lasted=2, error="refused")})
    presence.renew({})
    assert Worker.objects.get().troubles is None


def test_a_ring_that_fails_for_the_database_is_rung_again(monkeypatch: pytest.MonkeyPatch) -> None:
    ringer, rung = Ringer(), []

    def ring() -> list[doorbell.Wanted]:
        rung.append(1)
        if len(rung) == 1:
            raise Hurt
        return []

    monkeypatch.setattr(doorbell, "ring", ring)
    ringer.ring()
    with pytest.raises(Hurt):
        ringer.errand()

    assert ringer.ring_at < courier.NEVER
    ringer.ring_at = 0.0
    assert ringer.errand() == courier.NEVER  # and then it sleeps
    assert len(rung) == 2


def test_the_notifier_sends_notifications_and_then_sleeps() -> None:
    make_recipient()
    notify()
    notifier = Notifier()
    notifier.start()

    notifier.send()

    eventually(lambda: Delivery.objects.filter(status="sent").exists())
    eventually(lambda: notifier.left_at is None and notifier.go_at == courier.NEVER)
    assert notifier.is_alive()


def test_the_notifier_rests_while_what_is_due_cannot_be_sent() -> None:
    make_recipient(address="http://127.0.0.1:1/")
    notify()
    notifier = Notifier()
    delivered(notifier.deliverer)
    make_due()
    notifier.deliverer.breakers.opened["127.0.0.1:1"].retry_at = time.monotonic() + 60

    assert notifier.errand() == BLOCKED
    assert 0 < notifier.errand() <= BLOCKED  # however often it is sent
    connection.close()
