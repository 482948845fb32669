"""A broker that refuses, hangs or forgets for a while, with periodic tasks due, runs waking and a worker killed meanwhile:
only rings wait. `make chaos ALL=1` runs this for a minute each and prints how long dispatch took; OUTAGE is seconds."""

import os
import signal
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
import redis

from config.stack.embedded import Valkey
from runs.db.sql import database_now
from runs.models import OutboxMessage
from tests.integration.protocol import emit, in_status, split
from tests.support.runs import make_run
from tests.support.stack import SHOP, Stack, StackMaker, eventually, within

pytestmark = [pytest.mark.chaos, pytest.mark.long]

OUTAGE = float(os.environ.get("OUTAGE", "60"))  # seconds
TASKS = 50
LEDGER = "ledger"  # a queue of the broker without a reader: what was sent stays there
LEASE = {"WAKEFUL_LEASE": "3s", "WAKEFUL_LEASE_RENEW": "1s", "WAKEFUL_ALARM_AFTER": "5s", "WAKEFUL_SAFETY_LOOK": "2s"}
DELAYS = """
SELECT extract(epoch FROM dispatched_at - received_at)::float8 * 1000 AS ms FROM triggers_event
WHERE ce_source = 'test' AND type = 'effect.meanwhile'
"""
WAKES = "SELECT extract(epoch FROM ready_at - created_at)::float8 AS after FROM runs_run WHERE agent = 'absent'"


@contextmanager
def refused(valkey: Valkey) -> Iterator[None]:
    valkey.kill()
    yield
    valkey.start()


@contextmanager
def hung(valkey: Valkey) -> Iterator[None]:
    assert valkey.process
    valkey.process.send_signal(signal.SIGSTOP)
    yield
    valkey.process.send_signal(signal.SIGCONT)


@contextmanager
def forgetful(valkey: Valkey) -> Iterator[None]:
    over = threading.Event()

    def forget() -> None:
        while not over.wait(0.5):
            valkey.flush()

    thread = threading.Thread(target=forget)
    thread.start()
    yield
    over.set()
    thread.join()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("outage", [refused, hung, forgetful])
def test_while_the_broker_is_away_only_rings_wait(outage: Callable[[Valkey], Any], make_stack: StackMaker) -> None:
    stack = make_stack(env={**SHOP, **LEASE}, agents=True, own_servers=True)
    stack.start("dispatcher")
    workers = [stack.start("worker", concurrency=1, wait=False) for _ in range(2)]
    for worker in workers:
        worker.wait_ready()
    warm = emit(stack, "effect.warm", "warm")
    in_status(stack, warm, "succeeded")
    long = in_status(stack, emit(stack, "sleep.a", "long", key="k", seconds=20), "running")
    victim, _ = split(workers, stack, long)

    valkey = stack.servers.valkey
    assert valkey
    with outage(valkey):
        until = time.monotonic() + OUTAGE
        leave_work(stack)
        victim.kill()
        with within(3 + 10):
            eventually(lambda: rescued(stack, long))
        sent = 0
        while time.monotonic() < until:
            emit(stack, "effect.meanwhile", str(sent))
            sent += 1
            time.sleep(0.1)
        if outage is not forgetful:
            problem = "SELECT 1 FROM runs_worker WHERE kind = 'dispatcher' AND troubles ? 'broker-away'"
            assert stack.query(problem)
            assert stack.query("SELECT 1 FROM runs_alarm WHERE name = 'broker-away'")
    back = time.monotonic()

    unfinished = "SELECT 1 FROM runs_run WHERE agent <> 'absent' AND status <> 'succeeded'"
    eventually(lambda: not stack.query(unfinished), 120)
    caught_up = time.monotonic() - back
    eventually(lambda: not stack.query("SELECT 1 FROM runs_outboxmessage"), 120)
    eventually(lambda: not stack.query("SELECT 1 FROM runs_alarm WHERE name = 'broker-away' AND ended_at IS NULL"), 120)
    delays = sorted(row["ms"] for row in stack.query(DELAYS))
    woken = sorted(row["after"] - 5 for row in stack.query(WAKES))
    p50, p99 = statistics.median(delays), delays[int(len(delays) * 0.99)]
    with redis.Redis.from_url(stack.redis_url) as client:
        delivered = int(client.llen(LEDGER))
    print(
        f"\n{outage.__name__} for {OUTAGE:.0f} s: {len(delays)} events dispatched after p50 {p50:.0f} ms, p99 {p99:.0f} ms,"
        f" at most {delays[-1]:.0f} ms; {len(woken)} runs woken late by at most {woken[-1] * 1000:.0f} ms;"
        f" {delivered} of {TASKS} periodic tasks in the broker; all runs done {caught_up:.1f} s after it was back"
    )
    assert len(delays) == sent and len(woken) == 20
    assert p99 < 250
    if outage is not forgetful:  # what it forgot it was sent all the same
        assert delivered == TASKS
    stack.manage("verify")


def leave_work(stack: Stack) -> None:
    """Periodic tasks that are due, and runs that wake in five seconds; no worker has code for these."""
    with stack.orm():
        payload: dict[str, Any] = {
            "task": "shop.bill",
            "args": [],
            "queue": LEDGER,
            "exchange": None,
            "routing_key": None,
            "headers": {},
        }
        OutboxMessage.objects.bulk_create(
            OutboxMessage(
                topic="task", key=str(n), payload={**payload, "kwargs": {"n": n}, "priority": None, "expires": None}
            )
            for n in range(TASKS)
        )
        soon = database_now() + timedelta(seconds=5)
        for _ in range(20):
            make_run(agent="absent", ready_at=None, due_at=soon)


def rescued(stack: Stack, run: dict[str, Any]) -> bool:
    return bool(stack.query("SELECT 1 FROM runs_attempt WHERE run_id = %s AND outcome = 'lost'", run["id"]))
