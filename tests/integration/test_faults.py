"""The protocol under real faults: real PostgreSQL, real Redis, real worker processes that are really killed."""

import os
import signal
import time

import psutil
import pytest

from tests.integration.protocol import effects, emit, flush_broker, in_status, outcomes, run_of, runs, shop_stack, split
from tests.support.stack import Stack, StackMaker, eventually, within

LEASE = 8  # seconds
SHORT_LEASE = {"WAKEFUL_LEASE": "3s", "WAKEFUL_LEASE_RENEW": "1s"}


@pytest.fixture(scope="module")
def served(make_shared_stack: StackMaker) -> Stack:
    """A dispatcher and a worker that survive what these tests do to its children."""
    stack = shop_stack(make_shared_stack)
    stack.start("worker", concurrency=2)
    return stack


def test_a_killed_workers_run_is_handed_on_within_15_seconds(make_stack: StackMaker) -> None:
    stack = shop_stack(make_stack)
    workers = [stack.start("worker", concurrency=1) for _ in range(2)]
    event = emit(stack, "sleep.a", "1", key="k", seconds=3)
    run = in_status(stack, event, "running")
    time.sleep(LEASE - 6)  # its body is under way

    victim, _ = split(workers, stack, run)
    victim.kill()
    with within(15):
        eventually(lambda: runs(stack, "id = %s AND status = 'running' AND epoch > %s", run["id"], run["epoch"]))

    run = in_status(stack, event, "succeeded")
    assert outcomes(stack, run) == ["lost", "succeeded"]
    assert effects(stack, event) == 1


def test_a_killed_childs_run_goes_on_at_once(served: Stack) -> None:
    stack = served
    event = emit(stack, "sleep.a", "killed", key="killed", seconds=2)
    run = in_status(stack, event, "running")
    time.sleep(0.5)

    os.kill(run["pid"], signal.SIGKILL)
    with within(1.5):
        eventually(lambda: runs(stack, "id = %s AND status = 'running' AND epoch > %s", run["id"], run["epoch"]))

    run = in_status(stack, event, "succeeded")
    assert outcomes(stack, run) == ["lost", "succeeded"]
    assert effects(stack, event) == 1


def test_a_frozen_workers_locks_do_not_block_its_successor(make_stack: StackMaker) -> None:
    stack = shop_stack(make_stack, **SHORT_LEASE)
    workers = [stack.start("worker", concurrency=1) for _ in range(2)]
    event = emit(stack, "hold.a", "1", seconds=2)
    run = in_status(stack, event, "running")
    session = f"wakeful:{run['id']}:{run['epoch']}"
    eventually(
        lambda: stack.query(
            "SELECT 1 FROM pg_stat_activity WHERE application_name = %s AND xact_start IS NOT NULL", session
        )
    )
    time.sleep(0.5)

    frozen, _ = split(workers, stack, run)
    frozen.freeze()
    run = in_status(stack, event, "succeeded")
    assert outcomes(stack, run) == ["lost", "succeeded"]

    assert not stack.query("SELECT 1 FROM pg_stat_activity WHERE application_name = %s", session)
    frozen.thaw()
    eventually(lambda: "lease_lost" in frozen.output())
    assert effects(stack, event) == 1
    # It comes back as a new incarnation, and works.
    eventually(
        lambda: len(stack.query("SELECT 1 FROM runs_worker WHERE kind = 'worker' AND stopped_at IS NULL")) == 2, 30
    )
    assert frozen.is_alive()


def test_a_run_frozen_before_its_body_runs_it_on_a_live_connection_and_is_fenced(make_stack: StackMaker) -> None:
    stack = shop_stack(make_stack, **SHORT_LEASE)
    first = stack.start("worker", concurrency=1, env={"WAKEFUL_FAILPOINTS": "after_claim=stop*1"})
    event = emit(stack, "effect.a", "1")
    run = in_status(stack, event, "running")
    # Frozen in front of it, the child would stop there once it goes on.
    eventually(lambda: psutil.Process(run["pid"]).status() == psutil.STATUS_STOPPED)
    first.freeze()

    stack.start("worker", concurrency=1)
    eventually(lambda: runs(stack, "agent = 'effect' AND status = 'succeeded' AND epoch > 1"), 30)
    assert effects(stack, event) == len(runs(stack, "agent LIKE 'effect%%' AND status = 'succeeded'"))

    # The child first: the parent would end it as soon as it learns that its lease is gone.
    os.kill(run["pid"], signal.SIGCONT)
    eventually(lambda: "run.fenced" in first.output())
    first.thaw()
    eventually(lambda: "lease_lost" in first.output())
    assert len(stack.query("SELECT 1 FROM shop_effect WHERE run = %s", run["id"])) == 1


def test_a_stopping_worker_lets_a_short_run_finish(make_stack: StackMaker) -> None:
    stack = shop_stack(make_stack)
    worker = stack.start("worker", concurrency=1)
    event = emit(stack, "sleep.a", "1", key="k", seconds=2)
    in_status(stack, event, "running")

    assert worker.stop() == 0

    run = run_of(stack, event)
    assert run["status"] == "succeeded"
    assert outcomes(stack, run) == ["succeeded"]


def test_a_stopping_worker_releases_a_long_run_with_its_attempt_given_back(make_stack: StackMaker) -> None:
    stack = shop_stack(make_stack, WAKEFUL_SHUTDOWN_GRACE="1s")
    worker = stack.start("worker", concurrency=1)
    event = emit(stack, "sleep.a", "1", key="k", seconds=20)
    in_status(stack, event, "running")
    time.sleep(0.5)

    with within(6):
        worker.stop()

    run = run_of(stack, event)
    assert (run["status"], run["attempt"]) == ("queued", 0)
    assert outcomes(stack, run) == ["released"]
    assert effects(stack, event) == 0


def test_a_body_past_its_timeout_fails_the_run(served: Stack) -> None:
    stack = served
    stack.query("UPDATE triggers_trigger SET policy = policy || '{\"timeout\": 1}' WHERE slug = 'sleeper'")
    event = emit(stack, "sleep.a", "slow", key="slow", seconds=20)

    run = in_status(stack, event, "failed")
    stack.query("UPDATE triggers_trigger SET policy = policy - 'timeout' WHERE slug = 'sleeper'")

    assert outcomes(stack, run) == ["deadline"]
    assert effects(stack, event) == 0


def test_a_body_that_will_not_stop_is_killed_and_its_child_replaced(served: Stack) -> None:
    stack = served
    worker = stack.processes[-1]
    children = len(worker.children())
    event = emit(stack, "stubborn.a", "stubborn", seconds=60)
    killed = in_status(stack, event, "running")["pid"]

    run = in_status(stack, event, "failed")

    assert outcomes(stack, run) == ["deadline"]
    # The killed one is a child until it is reaped.
    eventually(lambda: killed not in {child.pid for child in worker.children()})
    eventually(lambda: len(worker.children()) == children)
    assert in_status(stack, emit(stack, "effect.a", "after stubborn"), "succeeded")


def test_a_running_run_is_cancelled_and_its_key_freed(served: Stack) -> None:
    stack = served
    first = emit(stack, "sleep.a", "cancelled", key="cancelled", seconds=25)
    run = in_status(stack, first, "running")
    second = emit(stack, "sleep.a", "after cancelled", key="cancelled", seconds=0)
    assert run_of(stack, second)["ready_at"] is None

    with stack.orm():
        from runs.actions.cancel import cancel

        cancel(run["id"], by="test")

    run = in_status(stack, first, "cancelled")
    assert outcomes(stack, run) == ["cancelled"]
    in_status(stack, second, "succeeded")
    assert effects(stack, first) == 0


def test_a_flushed_redis_costs_a_second_not_a_run(served: Stack) -> None:
    stack = served
    busy = [emit(stack, "sleep.a", f"busy-{n}", key=str(n), seconds=2) for n in range(2)]
    for event in busy:
        in_status(stack, event, "running")
    waiting = [emit(stack, "effect.a", f"waiting-{n}") for n in range(10)]
    eventually(lambda: len(runs(stack, "agent = 'effect' AND event_ids <@ %s::uuid[]", waiting)) == 10)

    flush_broker(stack)

    for event in [*busy, *waiting]:
        in_status(stack, event, "succeeded")
    assert all(effects(stack, event) == 2 for event in waiting)


def test_a_run_that_kills_its_process_ends_among_the_failed(make_stack: StackMaker) -> None:
    stack = shop_stack(make_stack)
    stack.start("worker", concurrency=1, env={"WAKEFUL_FAILPOINTS": "after_body=kill"})
    event = emit(stack, "sleep.a", "1", key="k", seconds=0)

    run = in_status(stack, event, "failed")

    assert outcomes(stack, run) == ["lost"] * 4
    assert effects(stack, event) == 0


@pytest.mark.chaos
def test_children_that_come_and_go_lose_no_run(make_stack: StackMaker) -> None:
    stack = shop_stack(make_stack)
    stack.start("worker", "--max-tasks-per-child", "1", concurrency=2)
    events = [emit(stack, "sleep.a", str(n), key=str(n), seconds=1.1) for n in range(8)]

    for event in events:
        in_status(stack, event, "succeeded")

    outcomes = stack.query("SELECT outcome, count(*) FROM runs_attempt GROUP BY outcome")
    assert outcomes == [{"outcome": "succeeded", "count": 8}]
