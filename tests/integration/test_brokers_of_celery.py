"""Celery's broker is another one than a Redis by itself, and fails under load: nothing is lost, and nothing is done twice."""

import json
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from amqp import ChannelError
from kombu import Connection

from runs.models import OutboxMessage
from runs.network import broker
from tests.integration.protocol import emit, in_status
from tests.support.certificates import Authority
from tests.support.rabbitmq import rabbitmq
from tests.support.redis_servers import MASTER, PASSWORD, Sentinels, encrypted, sentinels
from tests.support.stack import SHOP, Stack, StackMaker, eventually
from triggers.schedules.periodic_tasks import send_periodic_task

pytestmark = [pytest.mark.chaos, pytest.mark.long]

PER_EVENT = 3  # effects of one: of two agents, and of one that what the first of them emits wakes
UNFINISHED = "SELECT status, agent FROM runs_run WHERE status <> 'succeeded' LIMIT 3"
TASKS = 20


def shop_on(make_stack: StackMaker, url: str, **options: Any) -> Stack:
    broker = {"REDIS_URL": url, "CELERY_BROKER_URL": url, "WAKEFUL_BROKER_OPTIONS": json.dumps(options)}
    stack = make_stack(env={**SHOP, **broker, "WAKEFUL_SAFETY_LOOK": "2s"}, agents=True)
    stack.start("dispatcher")
    for _ in range(2):
        stack.start("worker", wait=False)
    for worker in stack.processes:
        worker.wait_ready()
    in_status(stack, emit(stack, "effect.warm", "warm"), "succeeded")
    return stack


@contextmanager
def load(stack: Stack) -> Iterator[list[str]]:
    """Events, ten a second, meanwhile; those that were recorded."""
    recorded: list[str] = []
    over = threading.Event()

    def send() -> None:
        while not over.wait(0.1):
            recorded.append(emit(stack, "effect.load", f"load-{len(recorded)}"))

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield recorded
    finally:
        over.set()
        sender.join()


def assert_each_once(stack: Stack, recorded: list[str]) -> None:
    expected = (len(recorded) + 1) * PER_EVENT  # and the one that warmed it up
    eventually(lambda: not stack.query(UNFINISHED) and effects_of(stack)["all"] >= expected)
    assert effects_of(stack) == {"all": expected, "runs": expected}
    stack.manage("verify")


def effects_of(stack: Stack) -> dict[str, Any]:
    return stack.query('SELECT count(*) AS "all", count(DISTINCT run) AS runs FROM shop_effect')[0]


def leave_periodic_tasks(stack: Stack, queue: str) -> None:
    payload: dict[str, Any] = {
        "task": "shop.bill",
        "args": [],
        "queue": queue,
        "exchange": None,
        "routing_key": None,
        "headers": {},
    }
    with stack.orm():
        OutboxMessage.objects.bulk_create(
            OutboxMessage(
                topic="task", key=str(n), payload={**payload, "kwargs": {"n": n}, "priority": None, "expires": None}
            )
            for n in range(TASKS)
        )


@pytest.fixture
def behind_sentinels(tmp_path: Path) -> Iterator[Sentinels]:
    with sentinels(tmp_path) as found:
        yield found


@pytest.mark.parametrize("frozen", [False, True], ids=["killed", "frozen"])
def test_sentinels_promote_another_master_under_load(
    behind_sentinels: Sentinels, make_stack: StackMaker, frozen: bool
) -> None:
    stack = shop_on(make_stack, behind_sentinels.url, master_name=MASTER)
    before = behind_sentinels.master
    assert before.process

    with load(stack) as recorded:
        time.sleep(2)
        if frozen:
            before.process.send_signal(signal.SIGSTOP)
        else:
            before.kill()
        eventually(lambda: behind_sentinels.master is not before, timeout=60)
        time.sleep(5)
        if frozen:
            before.process.send_signal(signal.SIGCONT)  # and is made a replica
        else:
            before.start()
        time.sleep(3)

    assert_each_once(stack, recorded)
    # Rings go to the new master, where workers wait for them.
    with behind_sentinels.master.client() as client:
        assert eventually(lambda: [one for one in client.client_list() if one["cmd"] == "brpop"])
    said = stack.manage("doctor", check=False).stdout
    assert "the broker keeps its messages when memory is full (noeviction)" in said


def test_redis_is_reached_by_tls_with_a_client_certificate(tmp_path: Path, make_stack: StackMaker) -> None:
    authority = Authority(tmp_path)
    with encrypted(tmp_path, authority) as server:
        tls = {
            "ca_certs": str(authority.path),
            "certfile": server.tls["ssl_certfile"],
            "keyfile": server.tls["ssl_keyfile"],
        }
        url = f"rediss://:{PASSWORD}@127.0.0.1:{server.port}/0"
        stack = shop_on(make_stack, url, tls=tls)

        with load(stack) as recorded:
            time.sleep(3)

        assert_each_once(stack, recorded)
        assert "the broker keeps its messages" in stack.manage("doctor", check=False).stdout
        assert "would remove the key _kombu.binding" in stack.manage("uninstall", "--dry-run").stdout
        # The dispatcher's own thread rings, too.
        assert "quick_ring.failed" not in stack.processes[0].output()


@pytest.mark.parametrize("options", [{}, {"tls": {"cert_reqs": "required"}}], ids=["by default", "required"])
def test_a_redis_whose_certificate_nobody_known_has_signed_is_refused(
    tmp_path: Path, make_stack: StackMaker, options: dict[str, Any]
) -> None:
    with encrypted(tmp_path, Authority(tmp_path)) as server:
        url = f"rediss://:{PASSWORD}@127.0.0.1:{server.port}/0"
        stack = make_stack(env={"CELERY_BROKER_URL": url, "WAKEFUL_BROKER_OPTIONS": json.dumps(options)})

        assert "the broker does not answer" in stack.manage("doctor", check=False).stdout


@pytest.mark.parametrize("frozen", [False, True], ids=["killed", "frozen"])
def test_rabbitmq_goes_away_under_load(tmp_path: Path, make_stack: StackMaker, frozen: bool) -> None:
    with rabbitmq(tmp_path) as server:
        url = f"amqp://guest:guest@127.0.0.1:{server.port}//"
        stack = shop_on(make_stack, url)

        with load(stack) as recorded:
            time.sleep(2)
            leave_periodic_tasks(stack, "ledger")
            if frozen:
                server.signal(signal.SIGSTOP)
                in_trouble = "SELECT 1 FROM runs_worker WHERE kind = 'dispatcher' AND troubles ? 'broker-away'"
                eventually(lambda: stack.query(in_trouble))  # it does not wait for an answer for ever
                server.signal(signal.SIGCONT)
            else:
                server.kill()
                time.sleep(5)
                server.begin()
            time.sleep(3)

        assert_each_once(stack, recorded)
        eventually(lambda: not stack.query("SELECT 1 FROM runs_outboxmessage"))
        # At least once: a confirmation may be lost, and no task is.
        channel = server.connection().channel()
        kept = channel.queue_declare("ledger", durable=True, auto_delete=False, passive=True).message_count
        assert kept >= TASKS
        assert "the broker answers" in stack.manage("doctor", check=False).stdout


def test_a_task_for_a_queue_that_was_deleted_is_sent_again_instead_of_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = dict.fromkeys(("exchange", "routing_key", "headers", "priority", "expires"))
    payload: dict[str, Any] = {**empty, "task": "shop.bill", "args": [], "kwargs": {}, "queue": "ledger"}
    with rabbitmq(tmp_path) as server:
        there = Connection(f"{server.url}//", transport_options={"confirm_publish": True})
        monkeypatch.setattr(broker, "connection", lambda: there)
        monkeypatch.setattr(broker, "breaker", broker.closed_breaker())
        send_periodic_task(payload)
        channel = server.connection().channel()
        channel.queue_delete("ledger")

        with pytest.raises(ChannelError, match="NO_ROUTE"):
            send_periodic_task(payload)
        broker.breaker.retry_at = 0.0
        send_periodic_task(payload)

        kept = channel.queue_declare("ledger", durable=True, auto_delete=False, passive=True)
        assert kept.message_count == 1
