"""The dispatcher's own rings are Celery's messages, within the bound, and cost dispatch next to nothing when the broker is slow, frozen
or away.
"""

import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import redis
from celery import current_app, signals
from kombu import Consumer

from runs.network import broker
from runs.queues import doorbell, quick_ring
from runs.queues.doorbell import DOORBELL, FORMAT, QUEUE_PREFIX, Wanted
from runs.queues.quick_ring import QuickRing
from tests.integration.protocol import emit, in_status
from tests.support.certificates import certificate_of
from tests.support.stack import SHOP, StackMaker, eventually, within

UUID = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
Dial = Callable[..., None]
TWO_CHILDREN = [Wanted(queue="default", bound=2, claimable=0)]


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "breaker", broker.closed_breaker())
    monkeypatch.setattr(quick_ring, "ANSWER", 10.0)  # a busy machine is no slow broker


@pytest.fixture
def dial(monkeypatch: pytest.MonkeyPatch) -> Dial:
    """Talk to the broker at this address, with these options of its transport."""

    def at(url: str, **options: Any) -> None:
        given = {"ack_emulation": False, "socket_timeout": broker.ANSWER, **options}
        found = current_app.connection_for_write(url).clone(transport_options=given)
        monkeypatch.setattr(broker, "connection", lambda: found)

    return at


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quick_ring, "ANSWER", 0.1)


@pytest.fixture
def store(servers: Any) -> Iterator["redis.Redis"]:
    with redis.Redis.from_url(servers.redis_url) as client:
        yield client


@pytest.fixture
def prefix(store: "redis.Redis") -> Iterator[str]:
    """Of the keys of one test."""
    prefix = f"{uuid4()}."
    yield prefix
    for key in keys_of(store, f"{prefix}*"):
        store.delete(key)
    let_out(store, prefix)


def keys_of(store: Any, pattern: str) -> list[bytes]:
    return list(store.keys(pattern))


def let_in(store: Any, name: str, *rules: str) -> None:
    """A user of Redis with these rules, whose password is "secret"."""
    store.execute_command("ACL", "SETUSER", name, "on", ">secret", "&*", *rules)


def let_out(store: Any, name: str) -> None:
    store.execute_command("ACL", "DELUSER", name)


def address_of(store: "redis.Redis") -> tuple[str, int]:
    given = store.connection_pool.connection_kwargs
    return given["host"], given["port"]


@pytest.fixture
def quick() -> Iterator[QuickRing]:
    quick = QuickRing()
    yield quick
    if quick.bell:
        quick.bell.close()


OPTIONS: list[dict[str, Any]] = [
    {},
    {"priority_steps": [0, 3, 6, 9], "sep": ":"},
    {"priority_steps": [3, 6]},
    {"queue_order_strategy": "sorted"},
    {"queue_order_strategy": "priority", "priority_steps": list(range(10))},
]


@pytest.mark.parametrize("options", OPTIONS, ids=repr)
def test_a_ring_is_the_message_that_celery_sends_byte_for_byte(
    options: dict[str, Any], quick: QuickRing, dial: Dial, store: "redis.Redis", prefix: str, servers: Any
) -> None:
    """In the same list of Redis. A new version of Celery or kombu that writes anything else fails here."""
    dial(servers.redis_url, global_keyprefix=prefix, **options)
    quick.prepare(TWO_CHILDREN)

    assert quick.ring({"default": 1})
    [key] = keys_of(store, f"{prefix}runs.default*")
    ours = _popped(store, key)
    with broker.producer() as producer:
        current_app.send_task(DOORBELL, ("default", FORMAT), queue="runs.default", producer=producer)

    theirs = _popped(store, key)
    assert not keys_of(store, f"{prefix}runs.default*")
    assert UUID.sub("id", ours) == UUID.sub("id", theirs)
    assert _ids(ours) == _ids(theirs)
    assert not set(UUID.findall(ours)) & set(UUID.findall(theirs))


def _popped(store: Any, key: bytes) -> str:
    [message] = store.lrange(key, 0, -1)
    store.delete(key)
    return str(message.decode())


def _ids(text: str) -> list[int]:
    """For each id of a message, at which place it came first."""
    found = UUID.findall(text)
    return [found.index(id) for id in found]


def test_celery_takes_each_ring_once(quick: QuickRing, dial: Dial, prefix: str, servers: Any) -> None:
    dial(servers.redis_url, global_keyprefix=prefix)
    quick.prepare([Wanted(queue="default", bound=3, claimable=0)])

    quick.ring({"default": 3})

    taken: list[Any] = []
    with (
        broker.connection().clone() as connection,
        Consumer(
            connection,
            [current_app.amqp.queues[f"{QUEUE_PREFIX}default"]],
            accept=["json"],
            callbacks=[lambda body, message: taken.append((body[0], message.headers["task"], message.headers["id"]))],
        ),
    ):
        while len(taken) < 3:
            connection.drain_events(timeout=60)
        with pytest.raises(socket.timeout):
            connection.drain_events(timeout=0.1)
    assert {(tuple(args), task) for args, task, _ in taken} == {(("default", FORMAT), DOORBELL)}
    assert len({id for _, _, id in taken}) == 3


def test_a_queue_holds_one_ring_per_child(
    quick: QuickRing, dial: Dial, store: "redis.Redis", prefix: str, servers: Any
) -> None:
    dial(servers.redis_url, global_keyprefix=prefix)
    quick.prepare([*TWO_CHILDREN, Wanted(queue="bulk", bound=50, claimable=0)])
    for _ in range(10):
        quick.ring({"default": 500, "bulk": 3})

    assert store.llen(f"{prefix}runs.default") == 2
    assert store.llen(f"{prefix}runs.bulk") == 30
    assert not quick.ring({"bulk": 100})  # the courier rings for the rest
    assert store.llen(f"{prefix}runs.bulk") == 50


def test_the_courier_rings_for_a_queue_that_is_unknown_paused_or_read_long_ago(
    quick: QuickRing, dial: Dial, store: "redis.Redis", prefix: str, servers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    dial(servers.redis_url, global_keyprefix=prefix)
    assert not quick.ring({"default": 1})
    quick.prepare(TWO_CHILDREN)

    assert not quick.ring({"default": 1, "bulk": 1})
    assert store.llen(f"{prefix}runs.default") == 1
    monkeypatch.setattr(quick_ring, "FRESH", 0.0)
    assert not quick.ring({"default": 2})
    assert store.llen(f"{prefix}runs.default") == 2  # it has rung nevertheless
    monkeypatch.undo()
    quick.prepare([])
    assert not quick.ring({"default": 2})


def test_a_queue_that_is_paused_during_a_ring_costs_no_bell(
    quick: QuickRing, dial: Dial, prefix: str, servers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The courier, a thread beside, takes over new bounds at any time."""
    dial(servers.redis_url, global_keyprefix=prefix)
    quick.prepare(TWO_CHILDREN)
    monkeypatch.setattr(quick_ring, "failpoint", lambda name: quick.prepare([]))

    assert quick.ring({"default": 1})
    assert quick.bell and not quick.breaker.is_open


def test_a_broker_that_is_not_plain_redis_is_left_to_the_courier(quick: QuickRing, dial: Dial) -> None:
    dial("memory://")
    quick.prepare(TWO_CHILDREN)

    assert quick.bell is None
    assert not quick.ring({"default": 1})
    assert quick.breaker.retry_in == float("inf")  # no further attempt


def test_messages_that_something_observes_are_left_to_celery(quick: QuickRing, dial: Dial, servers: Any) -> None:
    dial(servers.redis_url)

    def observe(**_: Any) -> None: ...

    signals.before_task_publish.connect(observe)
    try:
        quick.prepare(TWO_CHILDREN)
    finally:
        signals.before_task_publish.disconnect(observe)
    assert quick.bell is None


def test_a_user_of_redis_that_may_only_use_its_own_keys_rings(
    quick: QuickRing, dial: Dial, store: "redis.Redis", prefix: str, servers: Any
) -> None:
    let_in(store, prefix, f"~{prefix}*", "+@all", "-@dangerous")
    host, port = address_of(store)
    dial(f"redis://{prefix}:secret@{host}:{port}/0", global_keyprefix=prefix)

    quick.prepare(TWO_CHILDREN)

    assert quick.ring({"default": 1})
    assert store.llen(f"{prefix}runs.default") == 1


def test_a_user_of_redis_that_may_not_execute_scripts_leaves_them_to_the_courier(
    quick: QuickRing, dial: Dial, store: "redis.Redis", prefix: str, servers: Any
) -> None:
    let_in(store, prefix, "~*", "+@all", "-eval")
    host, port = address_of(store)
    dial(f"redis://{prefix}:secret@{host}:{port}/0", global_keyprefix=prefix)

    quick.prepare(TWO_CHILDREN)

    assert quick.bell is None and "permission" in quick.breaker.error
    assert not broker.breaker.is_open  # the courier's rings go on


class Road:
    """A road to the broker that may be blocked: what comes then is neither sent on nor refused."""

    def __init__(self, to: tuple[str, int], tls: ssl.SSLContext | None = None) -> None:
        self.to, self.tls, self.is_open, self.ends = to, tls, threading.Event(), list[socket.socket]()
        self.is_open.set()
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                here, _ = self.listening.accept()
            except OSError:
                return
            try:
                here = self.tls.wrap_socket(here, server_side=True) if self.tls else here
                there = socket.create_connection(self.to)
            except OSError:
                here.close()
                continue  # such as a client that does not trust the certificate
            self.ends += [here, there]
            for ends in ((here, there), (there, here)):
                threading.Thread(target=self._carry, args=ends, daemon=True).start()

    def _carry(self, one: socket.socket, other: socket.socket) -> None:
        try:
            while data := one.recv(65536):
                self.is_open.wait()
                other.sendall(data)
        except (OSError, ValueError):
            pass  # it was broken off

    def break_off(self) -> None:
        for end in self.ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self.ends = []

    def close(self) -> None:
        self.listening.close()
        self.is_open.set()
        self.break_off()


@pytest.fixture
def road(store: "redis.Redis") -> Iterator[Road]:
    road = Road(address_of(store))
    yield road
    road.close()


def make(quick: QuickRing) -> None:
    """As `prepare` does after a pause, but on a busy machine its probe may be late."""
    while quick.bell is None:
        with suppress(redis.TimeoutError):
            quick._make({"default": 2})


def url_by(road: Road, servers: Any, scheme: str = "redis") -> str:
    password = f":{servers.redis_url.split(':')[2].partition('@')[0]}@" if "@" in servers.redis_url else ""
    return f"{scheme}://{password}127.0.0.1:{road.port}/0"


@pytest.mark.sampled
def test_a_frozen_broker_costs_one_short_wait_and_a_new_bell_comes_after_a_pause(
    quick: QuickRing, dial: Dial, store: "redis.Redis", prefix: str, servers: Any, road: Road, impatient: None
) -> None:
    dial(url_by(road, servers), global_keyprefix=prefix)
    make(quick)
    road.is_open.clear()

    with within(0.3):
        assert not quick.ring({"default": 1})
    with within(1):  # three hundred, if each did
        for _ in range(1000):
            assert not quick.ring({"default": 1})  # nothing waits again
    quick.prepare(TWO_CHILDREN)
    assert quick.bell is None  # the pause is not over
    road.is_open.set()
    make(quick)
    assert quick.bell


def test_a_broker_that_answers_late_costs_less_and_less(
    quick: QuickRing, dial: Dial, prefix: str, servers: Any, road: Road, impatient: None
) -> None:
    dial(url_by(road, servers), global_keyprefix=prefix)
    pauses = []
    for _ in range(8):
        make(quick)
        road.is_open.clear()
        quick.ring({"default": 1})
        road.is_open.set()
        pauses.append(round(quick.breaker.retry_in))
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]


def test_a_lost_connection_is_replaced(quick: QuickRing, dial: Dial, prefix: str, servers: Any, road: Road) -> None:
    dial(url_by(road, servers), global_keyprefix=prefix)
    quick.prepare(TWO_CHILDREN)
    road.break_off()

    assert not quick.ring({"default": 1})
    quick.breaker.retry_at = 0.0
    quick.prepare(TWO_CHILDREN)
    assert quick.ring({"default": 1})


def test_a_broker_that_is_away_is_not_asked_for_a_bell(quick: QuickRing, dial: Dial, servers: Any) -> None:
    dial("redis://127.0.0.1:1/0")
    assert not doorbell.publish([Wanted(queue="default", bound=2, claimable=1)])

    dial(servers.redis_url)
    quick.prepare(TWO_CHILDREN)

    assert quick.bell is None and not quick.breaker.is_open  # the courier asks whether it is back
    broker.breaker.succeeded()
    quick.prepare(TWO_CHILDREN)
    assert quick.bell


def test_a_ring_goes_over_tls_and_the_certificate_is_verified(
    quick: QuickRing, dial: Dial, store: "redis.Redis", prefix: str, servers: Any, tmp_path: Path
) -> None:
    certificate = certificate_of("127.0.0.1", tmp_path)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate)
    road = Road(address_of(store), tls)
    try:
        trusting = f"{url_by(road, servers, 'rediss')}?ssl_cert_reqs=required"
        dial(trusting, global_keyprefix=prefix)
        quick.prepare(TWO_CHILDREN)
        assert quick.bell is None and broker.breaker.is_open

        broker.breaker.succeeded()
        # kombu's pools do not tell apart connections that differ in their certificates alone.
        dial(f"{trusting}&ssl_ca_certs={certificate}", global_keyprefix=prefix, client_name="trusting")
        quick.prepare(TWO_CHILDREN)
        assert quick.ring({"default": 1})
    finally:
        road.close()
    assert store.llen(f"{prefix}runs.default") == 1


def test_a_new_run_is_rung_for_by_the_dispatchers_own_thread(make_stack: StackMaker) -> None:
    """The courier rings for the first one and makes the bell; a worker of Celery's takes all of them."""
    stack = make_stack(env=SHOP, agents=True)
    stack.start("dispatcher")
    stack.start("worker", concurrency=1)

    def rings() -> int:
        with redis.Redis.from_url(stack.redis_url) as client:
            return int(client.info("commandstats").get("cmdstat_eval", {}).get("calls", 0))

    in_status(stack, emit(stack, "effect.first", "first"), "succeeded")
    eventually(lambda: rings() > 0)  # that it may
    before = rings()
    for number in range(3):
        in_status(stack, emit(stack, "effect.next", str(number)), "succeeded")
    assert rings() >= before + 3
