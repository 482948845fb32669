"""Any number of Beats, no leader, no tick lost and none fired twice; real processes, really killed.

`WAKEFUL_PROOF_SECONDS=180 pytest tests/integration/test_two_beats.py -k killed` is the long proof.
"""

import os
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from threading import Thread

import pytest
from django.db import connection, transaction
from django_celery_beat.models import PeriodicTask

from runs.models import Run
from tests.integration.protocol import shop_stack
from tests.stack import Process, Stack, StackMaker, eventually
from tests.triggers.factories import make_trigger
from triggers import schedules, ticks
from triggers.accept import builtin_source
from triggers.calendar import Interval
from triggers.models import Event, Schedule
from triggers.rule_rows import rule_of
from triggers.schedule_policy import SchedulePolicy

PROOF = float(os.environ.get("WAKEFUL_PROOF_SECONDS", "20"))  # seconds
SECOND = timedelta(seconds=1)
ALL = SchedulePolicy(catch_up="all")


def make_ticker(stack: Stack, *, every: str = "1s", length: timedelta | None = None, slug: str = "ticker") -> Schedule:
    """A schedule that catches everything up, for runs that may overlap; it ends after `length`."""
    # In one transaction, so that no Beat sees it before it has its end.
    with stack.orm(), transaction.atomic():
        trigger = make_trigger(slug, agent="ticker", types=[], overlap="allow")
        schedule = schedules.create_schedule(
            name=slug, trigger=trigger, rule=Interval.parse(every), policy=ALL, by="cli:test"
        )
        if length:
            ends_at = schedule.edited_at + length
            PeriodicTask.objects.filter(pk=schedule.task_id).update(expires=ends_at)
        schedule.refresh_from_db()
    return schedule


def ticks_so_far(stack: Stack) -> int:
    return int(stack.query("SELECT count(*) FROM triggers_event WHERE type = 'schedule.fired'")[0]["count"])


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


@pytest.mark.parametrize(("place", "recorded"), [("before_tick_commit", 0), ("after_tick_commit", 1)])
def test_tick_of_a_beat_that_dies_at_its_commit_is_recorded_once(stack: Stack, place: str, recorded: int) -> None:
    doomed = stack.start("beat", env={"WAKEFUL_FAILPOINTS": f"{place}=kill"})
    schedule = make_ticker(stack, length=3.5 * SECOND)
    doomed.wait()
    assert ticks_so_far(stack) == recorded

    stack.start("beat")
    eventually(lambda: stack.query("SELECT 1 FROM triggers_schedule WHERE next_fire_at IS NULL"))

    events = stack.query("SELECT time FROM triggers_event ORDER BY time")
    assert [event["time"] for event in events] == [schedule.edited_at + n * SECOND for n in (1, 2, 3)]
    assert not stack.query("SELECT 1 FROM triggers_redelivery")


def test_racing_tickers_account_for_every_tick_once(make_stack: StackMaker) -> None:
    stack = make_stack()
    with stack.orm():
        builtin_source.cache_clear()
        trigger = make_trigger("race", types=[], overlap="allow")
        for number in range(30):
            schedules.create_schedule(
                name=f"race {number}", trigger=trigger, rule=Interval.parse(1 + number % 7), policy=ALL, by="cli:test"
            )
        ticks.settle()
        start = max(Schedule.objects.values_list("edited_at", flat=True))
        end = start + 60 * SECOND

        tickers = [Thread(target=tick_through, args=(start, end)) for _ in range(3)]
        for ticker in tickers:
            ticker.start()
        for ticker in tickers:
            ticker.join()

        for schedule in Schedule.objects.select_related("task"):
            rule = rule_of(schedule.task, schedule.anchor_at)
            expected = list(fires_until(rule.fires, schedule.edited_at, end))
            fired = Event.objects.filter(ce_source=schedule.task.name).order_by("time")
            assert list(fired.values_list("time", flat=True)) == expected
            assert schedule.task.total_run_count == len(expected)
    assert not stack.query("SELECT 1 FROM triggers_redelivery")
    builtin_source.cache_clear()


def fires_until(fires: Callable, after, end):  # type: ignore[no-untyped-def, type-arg]
    for fire in fires(after):
        if fire > end:
            return
        yield fire


def tick_through(start, end) -> None:  # type: ignore[no-untyped-def]
    try:
        now = start
        while now < end:
            now = min(now + 0.7 * SECOND, end)
            while ticks.fire_due(now, limit=4):
                pass
        # What another one held a moment ago.
        while Schedule.objects.filter(next_fire_at__lte=end).exists():
            ticks.fire_due(end, limit=4)
    finally:
        connection.close()


def test_sigterm_ends_a_busy_beat_cleanly(stack: Stack) -> None:
    beat = stack.start("beat")
    make_ticker(stack, every="0.1s")
    eventually(lambda: ticks_so_far(stack) > 3)

    asked_at = time.monotonic()
    code = beat.stop()

    assert code == 0
    assert time.monotonic() - asked_at < 6  # its look is 10 s away; leaving takes a loaded machine a while
    [row] = stack.query("SELECT stopped_at, stopped_reason FROM runs_worker WHERE kind = 'beat'")
    assert row["stopped_at"] and row["stopped_reason"] == "stopped"
    assert "Traceback" not in beat.output()


def test_sigint_interrupts_the_wait_of_an_idle_beat(stack: Stack) -> None:
    beat = stack.start("beat")
    eventually(lambda: is_idle(stack, beat))

    asked_at = time.monotonic()
    beat.signal(signal.SIGINT)

    assert beat.wait() == 0
    assert time.monotonic() - asked_at < 6  # its look is 10 s away; leaving takes a loaded machine a while


def test_edit_is_honoured_in_under_a_second(stack: Stack) -> None:
    beat = stack.start("beat")
    make_ticker(stack, every="1h")
    eventually(lambda: is_idle(stack, beat))

    stack.query("UPDATE django_celery_beat_intervalschedule SET every = 500000, period = 'microseconds'")

    eventually(lambda: ticks_so_far(stack), timeout=0.5 + 1)


def test_idle_beat_says_nothing_to_the_database(stack: Stack) -> None:
    beat = stack.start("beat")
    make_ticker(stack, every="1h")
    eventually(lambda: is_idle(stack, beat))
    last = statements(stack)

    time.sleep(4)

    assert statements(stack) == last


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


def is_idle(stack: Stack, beat: Process) -> bool:
    """Has it begun, and come to wait for longer than a moment?"""
    seen = stack.query(
        "SELECT max(state_change) < clock_timestamp() - interval '1 s' AS idle FROM pg_stat_activity" + ITS
    )
    return "beat.listening" in beat.output() and bool(seen[0]["idle"])


def statements(stack: Stack) -> list[dict[str, object]]:
    return stack.query("SELECT pid, query_start FROM pg_stat_activity" + ITS + " ORDER BY pid")


ITS = " WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
