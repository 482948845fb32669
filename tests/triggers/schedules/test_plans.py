"""Previews, backfills, *why*, the list of what wakes next and Beat count an interval from the same instant."""

import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest
from django.db import transaction
from django.db.models import prefetch_related_objects
from django_celery_beat.models import IntervalSchedule, PeriodicTask

from runs.db.sql import database_now
from tests.support.triggers import make_trigger
from tests.triggers.schedules.test_why import dated, edit, fresh, made
from triggers.models import Revision, Schedule
from triggers.schedules.backfill.ticks import plan_from
from triggers.schedules.calendars import create_calendar
from triggers.schedules.definition import Definition, Draft
from triggers.schedules.edit import create_schedule
from triggers.schedules.firing import due_schedules
from triggers.schedules.plans import UNSETTLED, history_of, next_fire, plan_of
from triggers.schedules.preview import preview, upcoming
from triggers.schedules.rules.crontab import Cron
from triggers.schedules.rules.interval import Interval
from triggers.schedules.rules.once import Clocked
from triggers.schedules.rules.rule import Rule
from triggers.schedules.rules.sun import Solar
from triggers.schedules.terms.policy import SchedulePolicy
from triggers.upcoming.listing import clocks

pytestmark = [pytest.mark.sampled, pytest.mark.long, pytest.mark.django_db]

BEGIN = datetime(2050, 3, 26, 12, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


def every(minutes: int) -> IntervalSchedule:
    return IntervalSchedule.objects.get_or_create(every=minutes, period="minutes")[0]


def random_edit(random: Random, now: datetime) -> dict[str, Any]:
    """Resumed, or not, as often as not; another interval, start or policy."""
    start = now + random.randint(-300, 300) * MINUTE
    return random.choice(
        [
            {"enabled": False},
            {"enabled": True},
            {"enabled": True},
            {"interval": every(random.choice([7, 45, 90]))},
            {"interval": every(random.choice([7, 45, 90]))},
            {"start_time": random.choice([None, start])},
            {"jitter": random.randint(0, 60) * timedelta(seconds=1)},
        ]
    )


def fired_by_another_scheduler(schedule: Schedule, at: datetime) -> None:
    PeriodicTask.objects.filter(pk=schedule.task_id).update(last_run_at=at)


@pytest.mark.parametrize("seed", range(200 if "WAKEFUL_FULL" in os.environ else 2))
def test_every_reader_counts_from_the_same_instant_as_beat_after_any_history(seed: int) -> None:
    random = Random(seed)
    schedule, now = made(PeriodicTask.objects.create(name="digest", task="t", interval=every(45)), BEGIN), BEGIN
    for _ in range(12):
        now += random.choice([MINUTE, 20 * MINUTE, 3 * HOUR])
        for _ in range(random.randint(0, 3)):
            now += random.randint(1, 90) * MINUTE
            edit(schedule, now, **random_edit(random, now))
        if random.random() < 0.3:
            now += MINUTE
            fired_by_another_scheduler(schedule, now)
        if fresh(schedule).task.enabled:
            require_agreement(schedule, now)
        if random.random() < 0.5:
            due_schedules.settle(now)
            dated(schedule, now)
        if random.random() < 0.5 and not fresh(schedule).stale:
            while due_schedules.fire_due(now):
                pass
            dated(schedule, now)


def require_agreement(schedule: Schedule, now: datetime) -> None:
    """A preview before Beat has seen the last edits is what Beat makes of them."""
    schedule = fresh(schedule)
    anchors = {
        "preview": anchor(plan_of(schedule)),
        "backfill": anchor(plan_from(schedule, datetime(2051, 1, 1, tzinfo=UTC))),
        "why": anchor(history_of(schedule)[-1].plan),
        "upcoming": anchor(clocks([schedule])[0].plan),
    }
    previewed = upcoming(schedule, 2)
    with transaction.atomic():
        was_stale = schedule.stale
        due_schedules.settle(now)
        if not was_stale and schedule.next_fire_at:
            while due_schedules.fire_due(max(now, schedule.next_fire_at)):
                pass
        beat = fresh(schedule)
        transaction.set_rollback(True)  # Beat has not seen them yet
    assert anchors == dict.fromkeys(anchors, beat.anchor_at)
    if was_stale and beat.next_fire_at:
        assert previewed[0] == beat.next_fire_at


def anchor(plan: Any) -> datetime | None:
    assert isinstance(plan.rule, Interval)
    return plan.rule.anchor


def test_a_preview_counts_from_the_start_that_is_given() -> None:
    start = (database_now() + HOUR).replace(microsecond=0)

    fires = preview(Interval(every=45 * MINUTE), SchedulePolicy(start=start), 2)

    assert fires == [start, start + 45 * MINUTE]


def test_a_preview_of_an_interval_that_another_scheduler_fired_goes_on_from_there() -> None:
    schedule = made(PeriodicTask.objects.create(name="digest", task="t", interval=every(45)), BEGIN)
    fired_by_another_scheduler(schedule, BEGIN + 50 * MINUTE)

    assert anchor(plan_of(fresh(schedule))) == BEGIN + 50 * MINUTE
    assert upcoming(fresh(schedule), 1) == [BEGIN + 95 * MINUTE]
    assert next_fire(fresh(schedule), plan_of(fresh(schedule))) == BEGIN + 95 * MINUTE


@pytest.mark.parametrize("is_in_a_list", [False, True])
def test_a_schedule_that_was_read_before_beat_saw_its_edits_has_the_plan_that_beat_made(is_in_a_list: bool) -> None:
    schedule = made(PeriodicTask.objects.create(name="digest", task="t", interval=every(45)), BEGIN)
    edit(schedule, BEGIN + HOUR, enabled=False)
    due_schedules.settle(BEGIN + HOUR + MINUTE)
    dated(schedule, BEGIN + HOUR)
    read = edit(schedule, BEGIN + 2 * HOUR, enabled=True)
    due_schedules.settle(BEGIN + 2 * HOUR + MINUTE)
    if is_in_a_list:
        prefetch_related_objects([read], UNSETTLED)

    assert read.stale
    assert upcoming(read, 1) == [BEGIN + 2 * HOUR + 45 * MINUTE] == [fresh(schedule).next_fire_at]


def test_why_counts_each_definition_that_beat_had_not_seen_from_its_edit() -> None:
    schedule = made(PeriodicTask.objects.create(name="digest", task="t", interval=every(45)), BEGIN)
    for number, minutes in enumerate((90, 45), start=1):
        edit(schedule, BEGIN + number * HOUR, interval=every(minutes))
    edit(schedule, BEGIN + 3 * HOUR, jitter=MINUTE)

    anchors = [anchor(held.plan) for held in history_of(fresh(schedule))]

    due_schedules.settle(BEGIN + 4 * HOUR)
    assert anchors == [BEGIN, BEGIN + HOUR, BEGIN + 2 * HOUR, BEGIN + 2 * HOUR]
    assert fresh(schedule).anchor_at == BEGIN + 2 * HOUR


RULES: list[Rule] = [
    Cron.parse("*/5 9 * * mon-fri", "Europe/Vienna"),
    Interval(every=90 * MINUTE),
    Interval(every=timedelta(seconds=1.5)),
    Clocked(at=BEGIN),
    Solar(event="sunset", latitude=48.2, longitude=16.37),
]


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_rows_a_revision_and_a_draft_of_one_schedule_have_one_definition(rule: Rule) -> None:
    create_calendar(slug="mondays", days="2050-12-05", by="ada")
    policy = SchedulePolicy(
        catch_up="all", catch_up_max=3, jitter=MINUTE / 8, spread=HOUR, active_hours="mon-sun 01:00-23:00",
        active_zone="Asia/Tokyo", exclude=("mondays",), max_fires=9, start=BEGIN, end=BEGIN + 1000 * HOUR,
    )  # fmt: skip
    schedule = create_schedule(
        name="digest", rule=rule, trigger=make_trigger("digest", types=[]), policy=policy, by="ada"
    )
    Schedule.objects.update(created_at=BEGIN - HOUR * 24 * 365 * 40)
    Schedule.objects.update(jitter=MINUTE / 4)

    rows = Definition.of(schedule)
    revision = Definition.of(Revision.objects.get())
    draft = Definition.of(Draft(rule, policy))

    assert {name: rows.values[name] for name in revision.values if name != "name"} == {
        name: value for name, value in revision.values.items() if name != "name"
    } | {name: rows.values[name] for name in ("start", "end") if name in rows.values}
    assert (rows.start, rows.end, rows.spec) == (revision.start, revision.end, revision.spec)
    plans = [replace(one.plan(BEGIN), seed="") for one in (rows, revision, draft)]
    assert plans[0] == plans[1] == plans[2]
