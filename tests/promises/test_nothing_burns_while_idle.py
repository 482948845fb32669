"""An idle process blocks on LISTEN or until the next due time, and is there at once when something is to be done."""

import signal
import time
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import connection
from django_celery_beat.models import IntervalSchedule, PeriodicTask

from runs import waits
from runs.models import Wait
from tests.integration.protocol import make_ticker
from tests.support.durable import Lab, lab
from tests.support.stack import LENIENCE, Process, Stack, StackMaker, eventually, within
from triggers.models import ExclusionCalendar, Schedule
from triggers.schedules.edit import edit_schedule
from triggers.schedules.rules.interval import Interval

__all__ = ["lab"]

SECOND = timedelta(seconds=1)


@pytest.mark.django_db(transaction=True)
def test_a_waiting_run_has_no_process_and_no_place_in_the_queue(lab: Lab) -> None:
    run = lab.run(lambda run: run.sleep("3d"))

    assert (run.status, run.ready_at, run.due_at, run.attempt) == ("waiting", None, None, 0)
    wait = Wait.objects.get()
    assert (wait.key, wait.kind) == ("sleep#1", "time")
    assert wait.due_at
    assert timedelta(days=2, hours=23) < wait.due_at - wait.created_at < timedelta(days=3, minutes=1)
    assert not waits.end_due(10).runs


@pytest.fixture(scope="module")
def idle(make_shared_stack: StackMaker) -> Stack:
    """A stack whose one Beat has an hourly schedule, and nothing to do."""
    stack = make_shared_stack()
    stack.start("beat")
    make_ticker(stack, every="1h")
    with stack.orm():
        ExclusionCalendar.objects.create(slug="holidays", days="").schedules.add(
            Schedule.objects.get(task__name="ticker")
        )
    return stack


def test_idle_beat_sends_no_statement_to_the_database(idle: Stack) -> None:
    """Not between two safety looks, which are 10 s apart; on a busy machine the silence may come late."""
    eventually(lambda: is_idle(idle, idle.processes[0], seconds=3))


def test_edit_by_any_door_is_honoured_in_under_a_second(idle: Stack) -> None:
    eventually(lambda: is_settled(idle))
    took = {door.__name__: how_long(idle, door) for door in DOORS}

    print(", ".join(f"{name} {seconds * 1000:.0f} ms" for name, seconds in took.items()))
    # One of them may meet a machine that is busy with something else.
    assert sorted(took.values())[-2] < 1 * LENIENCE


def test_sigint_interrupts_the_wait_of_an_idle_beat(idle: Stack) -> None:
    beat = idle.start("beat")
    eventually(lambda: is_idle(idle, beat))

    with within(6):  # its look is 10 s away
        beat.signal(signal.SIGINT)
        assert beat.wait() == 0


def by_update(task: PeriodicTask) -> None:
    PeriodicTask.objects.filter(pk=task.pk).update(interval=some_interval(1801))


def by_save(task: PeriodicTask) -> None:
    task.interval = some_interval(1802)
    task.full_clean()
    task.save()


def by_the_service(task: PeriodicTask) -> None:
    """As the admin, the API and the command line edit."""
    schedule = Schedule.objects.get(task=task)
    edit_schedule(schedule, rule=Interval(every=1803 * SECOND), by="user:ada")


def by_sql(task: PeriodicTask) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE django_celery_beat_periodictask SET start_time = now() WHERE id = %s", [task.pk])


def by_the_row_of_its_rule(task: PeriodicTask) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE django_celery_beat_intervalschedule SET every = every + 1 WHERE id = %s", [task.interval_id]
        )


def by_its_policy(task: PeriodicTask) -> None:
    schedule = Schedule.objects.get(task=task)
    Schedule.objects.filter(task=task).update(jitter=schedule.jitter + SECOND)


def by_its_calendar(task: PeriodicTask) -> None:
    ExclusionCalendar.objects.update(days=f"2050-01-01 {time.monotonic()}")


DOORS = [by_update, by_save, by_the_service, by_sql, by_the_row_of_its_rule, by_its_policy, by_its_calendar]


def some_interval(seconds: int) -> IntervalSchedule:
    return IntervalSchedule.objects.get_or_create(every=seconds, period="seconds")[0]


def how_long(stack: Stack, edit: Callable[[PeriodicTask], None]) -> float:
    """Seconds from an edit until Beat has armed the row again."""
    with stack.orm():
        task = PeriodicTask.objects.select_related("wakeful").get(name="ticker")
        before = task.wakeful.edited_at
        edit(task)
        asked_at = time.monotonic()
        eventually(lambda: not Schedule.objects.get(task=task).stale, every=0.005)
        took = time.monotonic() - asked_at
        assert Schedule.objects.filter(task=task, edited_at__gt=before).exists()
        return took


def is_settled(stack: Stack) -> bool:
    return not stack.query("SELECT 1 FROM triggers_schedule WHERE stale")


def is_idle(stack: Stack, beat: Process, seconds: int = 1) -> bool:
    """Has it begun, and has no session sent a statement for so long?"""
    [seen] = stack.query(SILENCE, seconds)
    return "beat.listening" in beat.output() and bool(seen["idle"])


SILENCE = """
SELECT max(state_change) < clock_timestamp() - make_interval(secs => %s) AS idle FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
"""
