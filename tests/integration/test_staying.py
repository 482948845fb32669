"""A child of a worker stays in its task for the next run, which needs no broker then; nothing is lost if it cannot take the run.

The children of these tests stay for ten minutes, longer than any test waits."""

import signal
from collections.abc import Iterator
from itertools import count

import pytest

from runs.queues.stayers import SPACE
from tests.integration.protocol import emit, in_status, runs, shop_stack
from tests.support.servers import TestServers, servers_for_tests
from tests.support.stack import Process, Stack, StackMaker, eventually, within

ENV = {"WAKEFUL_STAY": "10m", "WAKEFUL_SHUTDOWN_GRACE": "10m"}
# The child of the session that waits for the queue: its session has the name of its last run.
STAYING = """
SELECT attempt.pid FROM pg_locks lock JOIN pg_stat_activity activity ON activity.pid = lock.pid
JOIN runs_attempt attempt ON activity.application_name = 'wakeful:' || attempt.run_id || ':' || attempt.epoch
WHERE lock.locktype = 'advisory' AND lock.granted AND lock.classid = %s
"""


def staying(stack: Stack) -> list[int]:
    return [row["pid"] for row in stack.query(STAYING, SPACE)]


def one_stays(stack: Stack) -> int:
    """Its pid. The first run is rung for. None stays after a run while the other child begins, or is busy with a superfluous ring."""
    numbers = count(len(runs(stack)))

    def after_a_run() -> list[int]:
        succeeds(stack, f"first {next(numbers)}")
        return staying(stack)

    return eventually(after_a_run, every=0.5)[0]


def succeeded(stack: Stack) -> int:
    return len(runs(stack, "status = 'succeeded'"))


def succeeds(stack: Stack, key: str) -> None:
    in_status(stack, emit(stack, "sleep.a", key, key=key, seconds=0), "succeeded")


@pytest.fixture
def stack(make_stack: StackMaker) -> Stack:
    return shop_stack(make_stack, **ENV)


@pytest.fixture
def broker(servers: TestServers) -> Iterator[TestServers]:
    """A Valkey of the test's own, which may be stopped, beside the PostgreSQL of this run."""
    with servers_for_tests({"DATABASE_URL": servers.database_url}) as own:
        yield own


def test_the_run_after_another_needs_no_broker(broker: TestServers, make_stack: StackMaker) -> None:
    stack = shop_stack(make_stack, **ENV, REDIS_URL=broker.redis_url, CELERY_BROKER_URL=broker.redis_url)
    stack.start("worker", concurrency=2)
    one_stays(stack)
    assert broker.embedded.valkey
    valkey = broker.embedded.valkey.process
    assert valkey
    valkey.send_signal(signal.SIGSTOP)
    try:
        # Where the claim takes longer than the dispatcher waits, it wakes no child for a second; the next one claims these runs too.
        keys = (f"without {number}" for number in count())
        before = succeeded(stack)

        def go_through() -> bool:
            key = next(keys)
            emit(stack, "sleep.a", key, key=key, seconds=0)
            return succeeded(stack) >= before + 3

        eventually(go_through, every=0.2)
    finally:
        valkey.send_signal(signal.SIGCONT)


@pytest.mark.chaos
def test_a_child_that_is_frozen_while_it_stays_holds_up_no_run(stack: Stack) -> None:
    worker = stack.start("worker", concurrency=2)
    pid = one_stays(stack)
    [child] = [child for child in worker.children() if child.pid == pid]
    child.suspend()

    with within(10):
        for number in range(6):
            succeeds(stack, f"beside {number}")

    child.resume()


@pytest.mark.chaos
def test_a_child_that_is_killed_while_it_stays_leaves_its_place_to_another(stack: Stack) -> None:
    worker = stack.start("worker", concurrency=2)
    pid = one_stays(stack)
    [child] = [child for child in worker.children() if child.pid == pid]
    child.kill()

    succeeds(stack, "after")

    assert one_stays(stack) != pid


@pytest.mark.chaos
def test_a_worker_ends_at_once_although_a_child_stays(stack: Stack) -> None:
    worker: Process = stack.start("worker", concurrency=2)
    one_stays(stack)

    assert worker.stop() == 0


@pytest.mark.chaos
def test_the_only_child_of_a_worker_does_not_stay(stack: Stack) -> None:
    """Whatever else it is wanted for would wait."""
    stack.start("worker", concurrency=1)
    in_status(stack, emit(stack, "sleep.a", "first", key="first", seconds=0), "succeeded")

    succeeds(stack, "second")  # its child had left its task
    assert not staying(stack)
