"""Every nominal time is accounted for: it fired, was caught up, or is a skip with its reason."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django_celery_beat.models import CrontabSchedule, PeriodicTask

from tests.triggers.test_beat import (
    HOUR,
    MINUTE,
    NINE,
    date_edit,
    every,
    fire_all,
    make_schedule,
    nominals,
    settled,
    skipped,
)
from triggers.models import Event, Revision, Schedule
from triggers.schedules.firing import catch_up as decide
from triggers.schedules.firing import due_schedules as due
from triggers.schedules.firing import settle
from triggers.schedules.rules.crontab import Cron
from triggers.schedules.rules.once import Clocked

pytestmark = pytest.mark.django_db

DAY = timedelta(days=1)


def make(rule: Any = None, *, seen_at: datetime = NINE, task: dict[str, Any] | None = None, **columns: Any) -> Schedule:
    """A schedule with policy columns, settled."""
    schedule = make_schedule(rule or every(HOUR), seen_at=seen_at, **(task or {}))
    Schedule.objects.filter(pk=schedule.pk).update(accounted_until=None, stale=True, **columns)
    Revision.objects.all().delete()
    return settled(schedule, seen_at)


def fresh(schedule: Schedule) -> Schedule:
    return Schedule.objects.select_related("task").get(pk=schedule.pk)


# Due times


def test_spread_fires_later_and_the_event_shows_all_three_times() -> None:
    schedule = make(spread=30 * MINUTE)
    due = schedule.due_at
    assert due and schedule.next_fire_at and schedule.next_fire_at < due < schedule.next_fire_at + 30 * MINUTE

    assert fire_all(due - timedelta(microseconds=1)) == []
    assert fire_all(due) == [NINE + HOUR]

    event = Event.objects.get()
    times = {"nominal": (NINE + HOUR).isoformat(), "due": due.isoformat()}
    assert event.data == {"schedule": "digest", **times}
    assert event.received_at


def test_tick_that_jitter_holds_back_is_neither_late_nor_missed() -> None:
    schedule = make(every(10 * MINUTE), jitter=9 * MINUTE, catch_up="skip")
    dues = []
    for _ in range(5):
        due = fresh(schedule).due_at
        assert due
        dues.append(due)
        fire_all(due + timedelta(seconds=1))

    assert nominals() == [NINE + k * 10 * MINUTE for k in range(1, 6)]
    assert skipped() == []
    assert len({due.minute % 10 for due in dues}) > 1


# Closed times


def test_the_next_fire_accounts_for_times_outside_active_hours() -> None:
    schedule = make(active_hours="09:00-11:30")

    fire_all(NINE + HOUR)
    fire_all(NINE + 2 * HOUR)
    assert fire_all(NINE + 5 * HOUR) == [NINE + HOUR, NINE + 2 * HOUR]
    assert fire_all(NINE + DAY) == [NINE + HOUR, NINE + 2 * HOUR, NINE + DAY]

    assert skipped() == [("inactive", NINE + 3 * HOUR, NINE + 23 * HOUR, 21)]
    assert fresh(schedule).accounted_until == NINE + DAY


# Limits


def test_schedule_retires_after_its_last_fire() -> None:
    schedule = make(max_fires=2)

    for hour in range(1, 5):
        fire_all(NINE + hour * HOUR)

    assert nominals() == [NINE + HOUR, NINE + 2 * HOUR]
    schedule = fresh(schedule)
    assert (schedule.rest, schedule.status, schedule.task.enabled, schedule.fires) == ("used_up", "used_up", False, 2)
    assert not schedule.stale


def test_missed_fires_do_not_pass_the_most_there_may_be() -> None:
    schedule = make(max_fires=3, catch_up="all")

    assert fire_all(NINE + 10 * HOUR) == [NINE + HOUR, NINE + 2 * HOUR, NINE + 3 * HOUR]
    assert fresh(schedule).rest == "used_up"


@pytest.mark.parametrize("catch_up", ["latest", "skip", "all"])
def test_times_after_the_last_fire_are_not_missed(catch_up: str) -> None:
    make(every(timedelta(seconds=1)), max_fires=1, catch_up=catch_up)

    assert fire_all(NINE + timedelta(seconds=2)) == [NINE + timedelta(seconds=1)]
    assert skipped() == []


def test_no_time_is_owed_after_max_fires_was_reached_before_an_edit() -> None:
    schedule = make(max_fires=3, catch_up="all")
    Schedule.objects.filter(pk=schedule.pk).update(catch_up_max=100)
    date_edit(schedule, NINE + 8.5 * HOUR)

    while due.find_due().has_stale:
        due.settle(NINE + 10 * HOUR)

    assert nominals() == [NINE + HOUR, NINE + 2 * HOUR, NINE + 3 * HOUR]
    assert skipped() == []
    assert fresh(schedule).rest == "used_up"


def test_end_of_a_schedule_is_reported() -> None:
    schedule = make(task={"expires": NINE + 1.5 * HOUR})

    fire_all(NINE + HOUR)

    assert (fresh(schedule).next_fire_at, fresh(schedule).rest) == (None, "over")


# Catching up


@pytest.mark.parametrize("batch", [decide.TICKS, 2])
def test_catch_up_all_fires_at_most_catch_up_max_the_newest(monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
    monkeypatch.setattr(due, "TICKS", batch)
    make(catch_up="all", catch_up_max=3)

    assert fire_all(NINE + 10.5 * HOUR) == [NINE + k * HOUR for k in (8, 9, 10)]
    assert skipped() == [("most", NINE + HOUR, NINE + 7 * HOUR, 7)]


@pytest.mark.parametrize("catch_up", ["all", "latest"])
def test_nothing_is_caught_up_that_is_older_than_the_window(catch_up: str) -> None:
    make(every(10 * HOUR), catch_up=catch_up, catch_up_window=5 * HOUR)

    assert fire_all(NINE + 38 * HOUR) == []
    assert skipped() == [("window", NINE + 10 * HOUR, NINE + 30 * HOUR, 3)]


def test_catch_up_window_drops_no_tick_on_time() -> None:
    make(catch_up="all", catch_up_window=timedelta(seconds=1))
    assert fire_all(NINE + HOUR + timedelta(seconds=20)) == [NINE + HOUR]


def test_late_one_shot_outside_its_window_is_skipped_and_done() -> None:
    schedule = make(Clocked(at=NINE + HOUR), catch_up_window=HOUR)

    assert fire_all(NINE + 5 * HOUR) == []
    assert skipped() == [("window", NINE + HOUR, NINE + HOUR, 1)]
    assert fresh(schedule).status == "done"


# Edits that come before Beat has done what was owed


def test_tick_that_was_due_before_an_edit_fires_by_the_rule_that_held() -> None:
    schedule = make(Cron.parse("0 10 * * *"))
    CrontabSchedule.objects.update(hour="12")
    date_edit(schedule, NINE + 2 * HOUR)

    due.settle(NINE + 2.5 * HOUR)

    assert nominals() == [NINE + HOUR]
    assert fresh(schedule).next_fire_at == NINE + 3 * HOUR


def test_one_shot_whose_time_fell_into_a_pause_is_over() -> None:
    schedule = make(Clocked(at=NINE + HOUR))
    task = PeriodicTask.objects.filter(pk=schedule.task_id)
    task.update(enabled=False)
    date_edit(schedule, NINE + 0.5 * HOUR)
    task.update(enabled=True)
    date_edit(schedule, NINE + 2 * HOUR)
    due.settle(NINE + 2 * HOUR)

    assert fire_all(NINE + 3 * HOUR) == []
    assert skipped() == [("paused", NINE + HOUR, NINE + HOUR, 1)]
    assert fresh(schedule).rest == "over"


def test_more_than_one_transaction_holds_is_owed_batch_by_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (due, settle):
        monkeypatch.setattr(module, "TICKS", 4)
    schedule = make(catch_up="all")
    Schedule.objects.filter(pk=schedule.pk).update(jitter=MINUTE)
    date_edit(schedule, NINE + 10.5 * HOUR)

    while due.find_due().has_stale:
        due.settle(NINE + 10.5 * HOUR)

    assert nominals() == [NINE + k * HOUR for k in range(1, 11)]
    assert skipped() == []


# What goes wrong with one of them
