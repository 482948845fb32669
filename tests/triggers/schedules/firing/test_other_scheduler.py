"""What django-celery-beat's own scheduler has fired is not owed by ours. Real Beats of both kinds in turn are in
tests/integration/test_switching_schedulers.py."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from django_celery_beat.models import CrontabSchedule, IntervalSchedule, PeriodicTask

from runs.models import OutboxMessage
from tests.triggers.test_beat import HOUR, MINUTE, NINE, skipped
from triggers.models import Schedule
from triggers.schedules.firing import due_schedules

pytestmark = pytest.mark.django_db

DAY, SECOND = timedelta(days=1), timedelta(seconds=1)
MIGRATED = NINE - 2 * MINUTE  # when our tables came to its database


def taken_over(*, every: timedelta | None = None, daily_at: datetime | None = None, **fields: Any) -> Schedule:
    """A task as our migration finds it: its Schedule has seen nothing yet."""
    if every:
        fields["interval"] = IntervalSchedule.objects.create(every=int(every.total_seconds()), period="seconds")
    if daily_at:
        fields["crontab"] = CrontabSchedule.objects.create(minute=daily_at.minute, hour=daily_at.hour, timezone="UTC")
    task = PeriodicTask.objects.create(name="clean", task="shop.tasks.clean", **fields)
    Schedule.objects.filter(task=task).update(accounted_until=task.last_run_at, edited_at=MIGRATED, created_at=MIGRATED)
    due_schedules.settle(MIGRATED)
    return Schedule.objects.get(task=task)


def fired_by_theirs(schedule: Schedule, at: datetime) -> None:
    PeriodicTask.objects.filter(pk=schedule.task_id).update(last_run_at=at)


def sent_until(now: datetime) -> list[datetime]:
    while due_schedules.fire_due(now):
        pass
    keys = OutboxMessage.objects.order_by("id").values_list("key", flat=True)
    return [datetime.fromisoformat(key.partition(":")[2]) for key in keys]


def test_interval_with_a_start_goes_on_from_its_last_fire_too() -> None:
    taken_over(every=DAY, last_run_at=NINE - HOUR, start_time=NINE - 10 * DAY + 5 * MINUTE)

    assert sent_until(NINE + 23 * HOUR - SECOND) == []
    assert sent_until(NINE + 23 * HOUR) == [NINE + 23 * HOUR]


def test_start_that_is_still_to_come_is_waited_for() -> None:
    taken_over(every=HOUR, last_run_at=NINE - HOUR, start_time=NINE + 5 * HOUR)

    assert sent_until(NINE + 6 * HOUR) == [NINE + 6 * HOUR]
    assert skipped() == [("missed", NINE + 5 * HOUR, NINE + 5 * HOUR, 1)]


def test_interval_that_has_never_run_counts_from_the_migration() -> None:
    taken_over(every=HOUR)

    assert sent_until(MIGRATED + HOUR) == [MIGRATED + HOUR]


def test_one_off_crontab_that_fired_and_was_not_retired_yet_does_not_repeat() -> None:
    taken_over(daily_at=NINE - HOUR, one_off=True, last_run_at=NINE - HOUR + SECOND, total_run_count=1)

    assert sent_until(NINE + 3 * DAY) == []


def test_times_that_theirs_fired_after_ours_are_skips_elsewhere() -> None:
    schedule = taken_over(every=HOUR, last_run_at=NINE - MINUTE)
    assert sent_until(NINE + 59 * MINUTE) == [NINE + 59 * MINUTE]

    fired_by_theirs(schedule, NINE + 5 * HOUR)
    assert sent_until(NINE + 5.5 * HOUR) == [NINE + 59 * MINUTE]

    assert sent_until(NINE + 6 * HOUR) == [NINE + 59 * MINUTE, NINE + 6 * HOUR]
    assert skipped() == [("elsewhere", NINE + 119 * MINUTE, NINE + 299 * MINUTE, 4)]


def test_one_off_that_the_other_scheduler_fired_after_arming_does_not_repeat() -> None:
    schedule = taken_over(daily_at=NINE + HOUR, one_off=True)

    fired_by_theirs(schedule, NINE + HOUR + SECOND)

    assert sent_until(NINE + 3 * DAY) == []
