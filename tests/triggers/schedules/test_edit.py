"""What a person does to a schedule, and what it is going to do."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.db import connection
from django_celery_beat.models import ClockedSchedule, CrontabSchedule, PeriodicTask

from runs.exceptions import IllegalState
from runs.models import AuditEntry, OutboxMessage
from tests.support.triggers import make_trigger
from triggers.exceptions import RuleError
from triggers.models import Event, Revision, Schedule
from triggers.schedules.calendars import create_calendar
from triggers.schedules.edit import (
    create_schedule,
    delete_schedule,
    edit_schedule,
    fire_schedule,
    pause_schedule,
    resume_schedule,
)
from triggers.schedules.firing import due_schedules
from triggers.schedules.preview import preview, upcoming
from triggers.schedules.rules.crontab import Cron
from triggers.schedules.rules.interval import Interval
from triggers.schedules.rules.once import Clocked
from triggers.schedules.rules.rule import Rule
from triggers.schedules.terms.policy import SchedulePolicy

pytestmark = pytest.mark.django_db

FUTURE = datetime(2050, 12, 1, 8, 0, tzinfo=UTC)
NINE = Cron.parse("0 9 * * *", "Europe/Vienna")
HOURLY = Interval.parse("1h")


def make(rule: Rule = NINE, name: str = "digest", **policy: Any) -> Schedule:
    return create_schedule(
        name=name, trigger=make_trigger(name), rule=rule, policy=SchedulePolicy.parse(policy), by="ada"
    )


def ordinary() -> Schedule:
    crontab = CrontabSchedule.objects.create(minute="0", hour="4")
    task = PeriodicTask.objects.create(name="sweep", task="shop.tasks.sweep", crontab=crontab, kwargs='{"deep": true}')
    return Schedule.objects.select_related("task__crontab").get(task=task)


def audited() -> list[str]:
    return [entry.action for entry in AuditEntry.objects.filter(kind="schedule").order_by("id")]


# Pausing, resuming


def test_a_pause_shows_who_and_why_until_it_is_resumed() -> None:
    schedule = pause_schedule(make(), by="ada", note="the mail server moves")
    assert (schedule.status, schedule.paused_by, schedule.paused_note) == ("paused", "ada", "the mail server moves")
    assert schedule.paused_at

    schedule = resume_schedule(schedule, by="bob")

    assert (schedule.status, schedule.paused_at, schedule.paused_by, schedule.paused_note) == ("active", None, "", "")
    assert audited() == ["create", "pause", "resume"]


def test_ordinary_tasks_are_paused_and_resumed_too() -> None:
    assert resume_schedule(pause_schedule(ordinary(), by="ada"), by="ada").task.enabled


def test_a_schedule_that_reached_max_fires_is_not_resumed_before_the_limit_is_raised() -> None:
    schedule = make(max_fires=2)
    Schedule.objects.update(fires=2)
    PeriodicTask.objects.update(enabled=False)
    schedule.refresh_from_db()

    with pytest.raises(IllegalState, match="has fired 2 times and may 2: raise max_fires, or clear it, first"):
        resume_schedule(schedule, by="ada")
    schedule = edit_schedule(schedule, policy=SchedulePolicy(max_fires=3), by="ada")

    assert resume_schedule(schedule, by="ada").task.enabled


def test_a_schedule_without_future_times_is_not_resumed_before_it_gets_another_rule() -> None:
    schedule = pause_schedule(make(Clocked(at=FUTURE)), by="ada")
    PeriodicTask.objects.update(clocked=ClockedSchedule.objects.create(clocked_time="2001-01-01T00:00Z"))
    schedule = Schedule.objects.select_related("task").get()

    with pytest.raises(IllegalState, match="would never fire again .once, at 2001-01-01 .*: give it another rule"):
        resume_schedule(schedule, by="ada")
    schedule = edit_schedule(schedule, rule=Clocked(at=FUTURE), by="ada")

    assert resume_schedule(schedule, by="ada").task.enabled


# Editing


def test_an_edit_that_changes_nothing_is_none() -> None:
    schedule = make(HOURLY, jitter="5m")
    due_schedules.settle()
    Schedule.objects.update(created_at="2026-01-01T00:00Z")

    schedule = edit_schedule(schedule, rule=HOURLY, policy=SchedulePolicy(jitter=timedelta(minutes=5)), by="ada")

    assert (schedule.stale, Revision.objects.count(), audited()) == (False, 0, ["create"])


def test_an_edit_changes_the_rows_and_is_recorded_by_its_fields() -> None:
    create_calendar(slug="at", days="*-12-25", by="ada")
    schedule = make(HOURLY)
    due_schedules.settle()

    policy = SchedulePolicy.parse({"exclude": ["at"], "start": "2050-01-01T00:00Z", "max_fires": 3})
    schedule = edit_schedule(schedule, rule=NINE, policy=policy, by="ada")

    assert SchedulePolicy.of(schedule) == policy
    assert (schedule.stale, str(schedule.task.start_time)) == (True, "2050-01-01 00:00:00+00:00")
    assert AuditEntry.objects.get(action="edit").detail == {
        "rule": "At 09:00 (Europe/Vienna)",
        "exclude": ["at"],
        "max_fires": 3,
        "start": "2050-01-01T00:00:00+00:00",
        "was": {"rule": "every 1 hour", "exclude": [], "max_fires": None, "start": None},
    }


def test_an_edit_after_which_it_would_never_fire_is_refused_whole() -> None:
    create_calendar(slug="always", days="2020-01-01..2099-12-31 For ever\n2100-01-01..2150-01-01 For ever", by="ada")
    schedule = make(Clocked(at=FUTURE))

    with pytest.raises(RuleError, match="every fire is closed out .always: For ever") as refused:
        edit_schedule(schedule, policy=SchedulePolicy(exclude=("always",), jitter=timedelta(1)), by="ada")

    assert refused.value.field == "exclude"
    assert SchedulePolicy.of(Schedule.objects.get()) == SchedulePolicy()


# Run now, delete


def test_run_now_wakes_the_agent_by_an_event_that_shows_which_schedule_it_was() -> None:
    schedule = make(data={"text": "hello"})
    due_schedules.settle()
    before = Schedule.objects.values().get()

    event_id = fire_schedule(schedule, by="ada")
    assert event_id

    event = Event.objects.get(pk=event_id)
    assert (event.type, event.target_id) == ("manual.fired", schedule.trigger_id)
    assert event.data == {"schedule": "digest", "data": {"text": "hello"}}
    assert Schedule.objects.values().get() == before  # it goes on as it was
    assert audited() == ["create", "fire"]


def test_run_now_sends_an_ordinary_task_with_the_arguments_of_its_row() -> None:
    assert fire_schedule(ordinary(), by="ada") is None

    payload = OutboxMessage.objects.get().payload
    assert (payload["task"], payload["kwargs"]) == ("shop.tasks.sweep", {"deep": True})


def test_a_declared_schedule_cannot_be_deleted() -> None:
    schedule, other = make(), make(name="other")
    schedule.trigger.declared = {"rule": {}}  # type: ignore[union-attr]

    with pytest.raises(IllegalState, match="declared in the code, and the next deploy would bring it back"):
        delete_schedule(schedule, by="ada")
    delete_schedule(other, by="ada")

    assert list(PeriodicTask.objects.values_list("name", flat=True)) == ["digest"]


# What comes next


@pytest.mark.parametrize("is_settled", [False, True])
def test_the_next_fires_are_those_that_its_policy_leaves(is_settled: bool) -> None:
    create_calendar(slug="mondays", days="2050-12-05", by="ada")
    schedule = make(
        Cron.parse("0 */6 * * *", "Europe/Vienna"),
        active_hours="mon-fri 05:00-13:00", exclude="mondays", start="2050-12-02T00:00Z", end="2050-12-09T00:00Z", max_fires=6,
    )  # fmt: skip
    if is_settled:
        due_schedules.settle()
        schedule = Schedule.objects.select_related("task__crontab").get()

    assert [f"{fire:%a %d %H:%M}" for fire in upcoming(schedule)] == [
        "Fri 02 06:00", "Fri 02 12:00", "Tue 06 06:00", "Tue 06 12:00", "Wed 07 06:00", "Wed 07 12:00",
    ]  # fmt: skip


def test_a_preview_shows_what_the_schedule_will_do() -> None:
    policy = SchedulePolicy(active_hours="09:00-12:00", active_zone="Asia/Tokyo")

    shown = preview(HOURLY, policy)

    assert len(shown) == 10
    assert all(9 <= fire.hour < 12 and str(fire.tzinfo) == "Asia/Tokyo" for fire in shown)
    assert all(later > fire for fire, later in pairwise(shown))
    assert preview(Clocked(at=FUTURE)) == [FUTURE]
    assert len(preview(NINE, SchedulePolicy(max_fires=2))) == 2


def test_a_preview_of_what_would_never_fire_shows_what_to_change() -> None:
    with pytest.raises(RuleError, match="that is past") as refused:
        preview(Clocked.parse("2001-01-01T00:00Z"))

    assert refused.value.field == "when"


def test_many_schedules_made_at_once_are_each_found_by_the_index() -> None:
    crontab = CrontabSchedule.objects.create(minute="0", hour="4")
    with connection.cursor() as cursor:
        # A table of no rows invites a sequential scan, and a session keeps its plan.
        cursor.execute("ANALYZE triggers_schedule")
        before = rows_scanned(cursor)
        PeriodicTask.objects.bulk_create(
            PeriodicTask(name=f"sweep-{number}", task="shop.tasks.sweep", crontab=crontab) for number in range(100)
        )
        assert rows_scanned(cursor) - before < 100


def rows_scanned(cursor: Any) -> int:
    cursor.execute("SELECT seq_tup_read FROM pg_stat_xact_user_tables WHERE relid = 'triggers_schedule'::regclass")
    return int(cursor.fetchone()[0])
