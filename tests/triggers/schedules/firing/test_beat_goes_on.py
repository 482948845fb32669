"""One schedule, and one uncommitted edit, hold up no other schedule: on a real PostgreSQL, with a second session."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from celery import Celery
from django.db import connection
from django_celery_beat.models import CrontabSchedule, IntervalSchedule, PeriodicTask, PeriodicTasks

from runs.models import OutboxMessage
from runs.outbox import deliver_inside
from tests.support.triggers import make_trigger
from tests.triggers.schedules.test_plan import count_calls
from triggers.beat import Scheduler
from triggers.models import Event, Revision, Schedule, Skip
from triggers.schedules import rows
from triggers.schedules.firing import due_schedules, owed_fires
from triggers.schedules.plan import Plan
from triggers.schedules.rules.crontab import Cron
from triggers.schedules.rules.interval import Interval
from triggers.schedules.rules.rule import Rule
from triggers.schedules.terms.policy import SchedulePolicy

NINE = datetime(2050, 3, 7, 9, 0, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
WINDOWS = ", ".join(f"{hour:02}:{minute:02}-{hour:02}:{minute + 15:02}" for hour in range(24) for minute in (0, 30))


def make_schedule(name: str, rule: Rule, *, seen_at: datetime = NINE, **policy: Any) -> Schedule:
    trigger = make_trigger(name, types=[])
    schedule = rows.add_schedule(trigger, name=name, rule=rule, policy=SchedulePolicy(**policy))
    Schedule.objects.filter(pk=schedule.pk).update(edited_at=seen_at)
    Revision.objects.filter(schedule=schedule).update(until=seen_at - timedelta(microseconds=1))
    due_schedules.settle()
    schedule.refresh_from_db()
    return schedule


def fired(name: str) -> list[datetime]:
    return [event.time for event in Event.objects.filter(ce_source=name).order_by("seq") if event.time]


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    app = Celery("goes on", set_as_current=False)
    app.conf.beat_schedule = {"sweep": {"task": "shop.sweep", "schedule": 3600.0}}
    scheduler = Scheduler(app)
    yield scheduler
    scheduler.close()


@contextmanager
def another_session() -> Iterator[psycopg.Connection[Any]]:
    """In a transaction of its own, rolled back at the end."""
    info = connection.connection.info
    with psycopg.connect(info.dsn, password=info.password) as other:
        yield other
        other.rollback()


@contextmanager
def an_uncommitted_edit_of(schedule: Schedule) -> Iterator[None]:
    """An agent's body, or a person's transaction, that has edited a schedule and goes on for a while."""
    PeriodicTasks.objects.update_or_create(ident=1, defaults={"last_update": NINE})
    with another_session() as other:
        other.execute("UPDATE django_celery_beat_periodictask SET priority = 1 WHERE id = %s", [schedule.task_id])
        other.execute("UPDATE django_celery_beat_periodictasks SET last_update = now()")
        yield


def tick(scheduler: Scheduler) -> None:
    """As `Scheduler.tick`, but never waiting for something to do."""
    scheduler.listener.wait = lambda timeout: False  # type: ignore[method-assign]
    scheduler.tick()


# One schedule


@pytest.mark.django_db
def test_a_schedule_that_owes_months_of_windows_is_worked_off_in_bounded_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(owed_fires, "STEPS", 300)
    make_schedule("busy", Cron.parse("*/5 * * * *"), active_hours=WINDOWS)
    make_schedule("other", Interval(every=HOUR))
    now = NINE + 20 * DAY
    looked_at = count_calls(monkeypatch, Plan, "closed")

    rounds = 0
    while due_schedules.fire_due(now):
        rounds += 1
        assert looked_at() < 1500 * rounds
        assert fired("other") == [NINE + 20 * DAY]

    assert rounds > 3
    assert fired("busy") == [now]
    counts = Skip.objects.filter(schedule__task__name="busy").values_list("count", flat=True)
    assert sum(count or 0 for count in counts) == 20 * 288 - 1


@pytest.mark.django_db(transaction=True)
def test_a_schedule_that_takes_too_long_twice_is_set_to_rest_and_the_others_fire(
    scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    past = datetime.now(UTC) - HOUR
    slow = make_schedule("slow", Interval(every=MINUTE), seen_at=past)
    make_schedule("other", Interval(every=MINUTE), seen_at=past)
    newest = Plan.newest

    def too_slow(plan: Plan, first: datetime, until: datetime) -> datetime:
        if plan.seed == str(slow.pk):
            time.sleep(0.8)
        return newest(plan, first, until)

    monkeypatch.setattr(Plan, "newest", too_slow)
    monkeypatch.setattr("triggers.beat.RECONNECT", 0)
    monkeypatch.setattr(
        "runs.db.listen.TIMEOUTS", "SELECT set_config('idle_in_transaction_session_timeout', '0.6s', false)"
    )
    monkeypatch.setattr(owed_fires, "SLOW", 0.7)

    for _ in range(8):
        tick(scheduler)

    assert fired("other")
    slow.refresh_from_db()
    assert (slow.rest, slow.stale, fired("slow")) == ("problem", False, [])
    assert "Simplify its active hours" in slow.problem
    assert slow.accounted_until is None or slow.accounted_until <= past  # what it owes stays owed


@pytest.mark.django_db
def test_a_past_that_cannot_be_worked_out_is_a_skip_that_gives_the_reason() -> None:
    schedule = make_schedule("odd", Cron.parse("0 * * * *"))
    crontab = CrontabSchedule.objects.filter(pk=schedule.task.crontab_id)
    crontab.update(minute="99")
    Schedule.objects.filter(pk=schedule.pk).update(accounted_until=NINE)
    crontab.update(minute="30")
    Revision.objects.filter(schedule=schedule, state__crontab__minute="99").update(until=NINE + 5 * HOUR)

    due_schedules.settle()

    skip = Skip.objects.get(schedule=schedule, reason="refused")
    assert skip.last == NINE + 5 * HOUR
    assert "99" in skip.detail
    schedule.refresh_from_db()
    assert schedule.next_fire_at == NINE + 5.5 * HOUR


# Uncommitted edits


@pytest.mark.django_db(transaction=True)
def test_beat_connects_and_fires_while_an_edit_is_uncommitted(scheduler: Scheduler) -> None:
    """Its own entries are written once nothing holds the one row that every edit of a schedule updates."""
    past = datetime.now(UTC) - HOUR
    make_schedule("due", Interval(every=MINUTE), seen_at=past)
    edited = make_schedule("edited", Interval(every=DAY), seen_at=past)

    with an_uncommitted_edit_of(edited):
        scheduler.look()

        assert scheduler.is_connected
        assert fired("due")
        assert not PeriodicTask.objects.filter(name="sweep")
    scheduler.walks_at = 0.0
    scheduler.look()

    assert PeriodicTask.objects.filter(name="sweep").exists()


@pytest.mark.django_db(transaction=True)
def test_beat_keeps_its_session_and_fires_tasks_while_the_sources_are_locked(
    scheduler: Scheduler, settings: Any
) -> None:
    """As by an ALTER TABLE of a migration that takes long."""
    settings.WAKEFUL_ADOPT_PERIODIC_TASKS = True
    scheduler.look()
    session = connection.connection
    every_hour = IntervalSchedule.objects.create(every=1, period=IntervalSchedule.HOURS)
    theirs = PeriodicTask.objects.create(name="theirs", task="shop.report", interval=every_hour)
    due_schedules.settle()

    with another_session() as other:
        other.execute("LOCK TABLE triggers_source")
        scheduler.walks_at = 0.0
        scheduler.look()
        assert scheduler.walks_at > time.monotonic()
        Schedule.objects.filter(task=theirs).update(next_fire_at=datetime.now(UTC), due_at=datetime.now(UTC))
        scheduler.look()

    assert connection.connection is session
    assert OutboxMessage.objects.filter(topic="task").exists()


@pytest.mark.django_db(transaction=True)
def test_beat_of_another_setting_fires_while_a_schedule_that_it_must_settle_is_locked(
    scheduler: Scheduler, settings: Any
) -> None:
    settings.WAKEFUL_ADOPT_PERIODIC_TASKS = True
    make_schedule("due", Interval(every=MINUTE), seen_at=datetime.now(UTC) - HOUR)
    every_hour = IntervalSchedule.objects.create(every=1, period=IntervalSchedule.HOURS)
    theirs = PeriodicTask.objects.create(name="theirs", task="shop.report", interval=every_hour)
    due_schedules.settle()
    settings.WAKEFUL_ADOPT_PERIODIC_TASKS = False

    with another_session() as other:
        other.execute("SELECT FROM triggers_schedule WHERE task_id = %s FOR UPDATE", [theirs.pk])
        scheduler.look()
        assert fired("due")
    scheduler.walks_at = 0.0
    scheduler.look()  # finds it
    scheduler.look()

    assert Schedule.objects.get(task=theirs).rest == "foreign"


@pytest.mark.django_db(transaction=True)
def test_schedules_set_by_runs_wait_for_an_uncommitted_edit_and_other_messages_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("triggers.schedules.agent_schedules.LATER", HOUR)
    trigger = make_trigger("onboarding", types=[])
    edited = make_schedule("edited", Interval(every=DAY))
    payload = {"trigger": str(trigger.pk), "run": str(trigger.pk), "name": "nightly", "cron": "", "tz": "UTC"}

    def put(every: float) -> None:
        OutboxMessage.objects.create(topic="schedule", key=str(trigger.pk), payload={**payload, "every": every})

    def make_available() -> None:
        OutboxMessage.objects.update(available_at=datetime.now(UTC) - MINUTE)

    put(60.0)
    with an_uncommitted_edit_of(edited):
        assert deliver_inside(10) == 1
        put(120.0)  # set later, and delivered before what was put off
    assert deliver_inside(10) == 1
    assert not Schedule.objects.filter(trigger=trigger)
    for _ in range(2):
        make_available()
        deliver_inside(10)

    assert not OutboxMessage.objects.exists()
    assert str(PeriodicTask.objects.get(name="onboarding/nightly").interval) == "every 2 minutes"


@pytest.mark.django_db
def test_a_closed_scheduler_exits_at_the_next_tick_although_the_exception_was_swallowed(scheduler: Scheduler) -> None:
    scheduler.close()  # what the handler of SIGTERM does before it raises

    with pytest.raises(SystemExit):
        scheduler.tick()
