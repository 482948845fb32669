"""A 2xx, a due schedule, an emitted event: each is a committed row, and survives the processes that carry it."""

import os
import signal
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest

from runs.models import Run
from tests.integration.protocol import (
    effects,
    emit,
    flush_broker,
    in_status,
    make_ticker,
    outcomes,
    run_of,
    runs,
    shop_stack,
    ticks_so_far,
)
from tests.support.hooks import make_source, signed_headers
from tests.support.stack import Process, Stack, StackMaker, eventually, within
from triggers.models import Event

pytestmark = pytest.mark.long

# `WAKEFUL_PROOF_SECONDS=180 pytest -m "" -k killed_beats` is the long proof; thousands of schedules through a week of
# simulated time are in tests/integration/test_week_of_schedules.py.
PROOF = float(os.environ.get("WAKEFUL_PROOF_SECONDS", "10"))  # seconds
SECOND = timedelta(seconds=1)


@pytest.fixture(scope="module")
def shop(make_shared_stack: StackMaker) -> Stack:
    """A dispatcher that survives the workers of these tests."""
    return shop_stack(make_shared_stack)


@pytest.fixture
def worker(shop: Stack) -> Iterator[Process]:
    worker = shop.start("worker", concurrency=2)
    yield worker
    worker.kill()


def test_without_postgresql_it_is_503_and_with_it_202_again(make_stack: StackMaker) -> None:
    stack = make_stack(own_servers=True)
    with stack.orm():
        make_source()
    stack.start("web")

    def status() -> int:
        answer = stack.request("POST", "/hooks/shop/", body=b"{}", headers=signed_headers(b"{}"))
        assert (answer.status == 503) == ("retry-after" in answer.headers)
        return answer.status

    assert status() == 202
    postgres = stack.servers.postgres
    assert postgres
    postgres.kill()
    assert status() == 503
    postgres.start()
    assert eventually(lambda: status() == 200)


def test_a_flushed_redis_costs_a_second_not_a_run(shop: Stack, worker: Process) -> None:
    busy = [emit(shop, "sleep.a", f"busy-{n}", key=str(n), seconds=2) for n in range(2)]
    for event in busy:
        in_status(shop, event, "running")
    waiting = [emit(shop, "effect.a", f"waiting-{n}") for n in range(10)]
    eventually(lambda: len(runs(shop, "agent = 'effect' AND event_ids <@ %s::uuid[]", waiting)) == 10)

    flush_broker(shop)

    for event in [*busy, *waiting]:
        in_status(shop, event, "succeeded")
    eventually(lambda: all(effects(shop, event) == 2 for event in waiting))


def test_a_killed_childs_run_goes_on_at_once(shop: Stack, worker: Process) -> None:
    event = emit(shop, "sleep.a", "killed", key="killed", seconds=2)
    run = in_status(shop, event, "running")
    time.sleep(0.5)

    os.kill(run["pid"], signal.SIGKILL)
    with within(1.5):
        eventually(lambda: runs(shop, "id = %s AND status = 'running' AND epoch > %s", run["id"], run["epoch"]))

    run = in_status(shop, event, "succeeded")
    assert outcomes(shop, run) == ["lost", "succeeded"]
    assert effects(shop, event) == 1


@pytest.mark.chaos
def test_children_that_come_and_go_lose_no_run(make_stack: StackMaker) -> None:
    stack = shop_stack(make_stack)
    stack.start("worker", "--max-tasks-per-child", "1", concurrency=2)
    events = [emit(stack, "sleep.a", str(n), key=str(n), seconds=1.1) for n in range(8)]

    for event in events:
        in_status(stack, event, "succeeded")

    outcomes = stack.query("SELECT outcome, count(*) FROM runs_attempt GROUP BY outcome")
    assert outcomes == [{"outcome": "succeeded", "count": 8}]


def test_a_stopping_worker_lets_a_short_run_finish(shop: Stack) -> None:
    worker = shop.start("worker", concurrency=1)
    event = emit(shop, "sleep.a", "short", key="short", seconds=2)
    in_status(shop, event, "running")

    assert worker.stop() == 0

    run = run_of(shop, event)
    assert run["status"] == "succeeded"
    assert outcomes(shop, run) == ["succeeded"]


def test_a_stopping_worker_releases_a_long_run_with_its_attempt_given_back(shop: Stack) -> None:
    worker = shop.start("worker", concurrency=1, env={"WAKEFUL_SHUTDOWN_GRACE": "1s"})
    event = emit(shop, "sleep.a", "long", key="long", seconds=20)
    in_status(shop, event, "running")
    time.sleep(0.5)

    with within(6):
        worker.stop()

    run = run_of(shop, event)
    assert (run["status"], run["attempt"]) == ("queued", 0)
    assert outcomes(shop, run) == ["released"]
    assert effects(shop, event) == 0
    shop.manage("cancel", str(run["id"]))  # or the worker of another test works on it


def test_tick_of_a_beat_that_dies_at_its_commit_is_recorded_once(stack: Stack) -> None:
    make_ticker(stack, length=8.5 * SECOND)
    for place in ("before_tick_commit", "after_tick_commit"):
        recorded = ticks_so_far(stack)
        doomed = stack.start("beat", env={"WAKEFUL_FAILPOINTS": f"{place}=kill"}, wait=False)
        doomed.wait()
        assert (ticks_so_far(stack) > recorded) == (place == "after_tick_commit")

    stack.start("beat")
    eventually(lambda: stack.query("SELECT 1 FROM triggers_schedule WHERE rest = 'over'"))

    [schedule] = stack.query("SELECT anchor_at FROM triggers_schedule WHERE trigger_id IS NOT NULL")
    events = stack.query("SELECT time FROM triggers_event ORDER BY time")
    assert [event["time"] for event in events] == [schedule["anchor_at"] + n * SECOND for n in range(1, 9)]
    assert not stack.query("SELECT 1 FROM triggers_redelivery")


@pytest.mark.chaos
def test_killed_beats_lose_no_tick_and_repeat_none(make_stack: StackMaker) -> None:
    stack = shop_stack(make_stack)
    stack.start("worker", concurrency=2)
    first, second = stack.start("beat"), stack.start("beat")
    schedule = make_ticker(stack, length=PROOF * SECOND)

    time.sleep(PROOF / 4)
    first.kill()
    time.sleep(PROOF / 4)
    first.restart()
    time.sleep(PROOF / 8)
    second.kill()  # the one that was restarted has to carry on alone
    eventually(lambda: stack.query("SELECT 1 FROM triggers_schedule WHERE next_fire_at IS NULL"), PROOF)

    expected = [schedule.edited_at + n * SECOND for n in range(1, int(PROOF))]
    with stack.orm():
        events = list(Event.objects.filter(type="schedule.fired").order_by("time").values_list("id", "time"))
        eventually(lambda: Run.objects.filter(status="succeeded").count() >= len(events))
        runs = list(Run.objects.values_list("event_ids", "status"))
        lateness = sorted(
            event.received_at - event.time for event in Event.objects.filter(type="schedule.fired") if event.time
        )
    effects = stack.query("SELECT count(*), count(DISTINCT event) AS events FROM shop_effect")[0]

    assert [time for _, time in events] == expected
    assert sorted(runs) == sorted(([id], "succeeded") for id, _ in events)
    assert effects == {"count": len(events), "events": len(events)}
    assert not stack.query("SELECT 1 FROM triggers_redelivery")
    print(
        f"{len(expected)} nominal times, {len(events)} events, {len(runs)} runs, {effects['count']} effects;"
        f" lateness median {lateness[len(lateness) // 2]}, worst {lateness[-1]}"
    )


@pytest.mark.chaos
def test_beat_survives_a_restart_of_the_database(make_stack: StackMaker) -> None:
    stack = make_stack(own_servers=True)
    beat = stack.start("beat")
    schedule = make_ticker(stack, every="0.5s")
    eventually(lambda: ticks_so_far(stack) > 2)
    assert stack.servers.postgres

    stack.servers.postgres.kill()
    time.sleep(2)
    stack.servers.postgres.start()
    before = ticks_so_far(stack)
    eventually(lambda: ticks_so_far(stack) > before + 6)

    with stack.orm():
        nominals = list(Event.objects.filter(type="schedule.fired").order_by("time").values_list("time", flat=True))
    assert beat.is_alive()
    assert "beat.database_gone" in beat.output()
    assert nominals == [schedule.edited_at + n * SECOND / 2 for n in range(1, len(nominals) + 1)]


def test_sigterm_ends_a_busy_beat_cleanly(stack: Stack) -> None:
    beat = stack.start("beat")
    make_ticker(stack, every="0.1s")
    eventually(lambda: ticks_so_far(stack) > 3)

    with within(6):  # its look is 10 s away
        assert beat.stop() == 0

    [row] = stack.query("SELECT stopped_at, stopped_reason FROM runs_worker WHERE kind = 'beat'")
    assert row["stopped_at"] and row["stopped_reason"] == "stopped"
    assert "Traceback" not in beat.output()
