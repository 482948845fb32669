"""A past range of a schedule is fired: each nominal time once, a few at a time, and what came of each is known."""

import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import StringIO
from threading import Barrier, Thread
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django_celery_beat.models import CrontabSchedule, IntervalSchedule, PeriodicTask

from agents import Permanent
from config import retention
from runs.actions.cancel import cancel
from runs.actions.requeue import requeue
from runs.db.sql import database_now, fetch
from runs.exceptions import IllegalState
from runs.models import NIL, AuditEntry, Run
from tests.support.api import Api
from tests.support.stack import eventually
from tests.support.triggers import make_event, make_trigger
from tests.triggers.dispatch.test_overlap import claim, end, start
from triggers.accept import builtin_source
from triggers.dispatch import batch as dispatching
from triggers.dispatch.batch import dispatch
from triggers.dispatch.hold import pause, resume
from triggers.dispatch.rules import Rules
from triggers.exceptions import RuleError, TriggerDisabled
from triggers.matching.backfill_terms import TERMS, key_of
from triggers.models import Backfill, BackfillTick, Decision, Event, Redelivery, Schedule, Trigger
from triggers.replays.replay import replay
from triggers.retention.prune import steps
from triggers.schedules.backfill.advance import AHEAD, Progress, advance, cancel_backfill, progress
from triggers.schedules.backfill.start import start_backfill
from triggers.schedules.edit import delete_schedule
from triggers.schedules.firing import due_schedules

pytestmark = pytest.mark.django_db

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
MIDNIGHT = datetime(2025, 3, 7, tzinfo=UTC)
NINE = MIDNIGHT + 9 * HOUR


def make_schedule(
    cron: str = "0 * * * *", zone: str = "UTC", *, trigger: Trigger | None = None, every: int = 0, **fields: Any
) -> Schedule:
    """On the hour, for the agent greeter, and settled; `every` so many minutes instead of the crontab."""
    trigger = trigger or make_trigger(types=[], overlap="skip")
    minute, hour, day, month, weekday = cron.split()
    task = PeriodicTask(name="hourly", task="t")
    if every:
        task.interval = IntervalSchedule.objects.create(every=every, period="minutes")
    else:
        task.crontab = CrontabSchedule.objects.create(
            minute=minute, hour=hour, day_of_month=day, month_of_year=month, day_of_week=weekday, timezone=zone
        )
    task.save()
    Schedule.objects.filter(task=task).update(trigger=trigger, **fields)
    return settled(task)


def settled(task: PeriodicTask) -> Schedule:
    due_schedules.settle()
    return Schedule.objects.select_related("task", "trigger").get(task=task)


def begin(schedule: Schedule, hours: int = 3, **terms: Any) -> Backfill:
    """A backfill of so many nominal times from nine on, the first of them fired."""
    backfill = start_backfill(schedule, start=NINE, end=NINE + hours * HOUR, by="cli:ada", **terms)
    advance()
    return backfill


def dispatch_all() -> None:
    while dispatch(Rules()).dispatched:
        pass


def nominals() -> list[datetime]:
    return [event.time for event in Event.objects.filter(type="schedule.fired").order_by("seq") if event.time]


def runs_in_order() -> list[Run]:
    return list(Run.objects.order_by("seq"))


def now_of(backfill: Backfill) -> tuple[str, Progress]:
    backfill.refresh_from_db()
    return backfill.status, progress(backfill)


# The range


def test_a_past_range_is_fired_in_the_order_of_its_nominal_times() -> None:
    backfill = begin(make_schedule(), 3)

    assert nominals() == [NINE, NINE + HOUR, NINE + 2 * HOUR]
    assert (backfill.total, backfill.priority, backfill.at_once, backfill.by) == (3, 9, 1, "cli:ada")


def test_a_backfilled_event_equals_that_of_a_tick_and_names_its_backfill() -> None:
    schedule = make_schedule(data={"to": "ada"})
    backfill = begin(schedule, 1)

    event = Event.objects.select_related("source").get()
    assert (event.source.slug, event.type, event.time, event.target_id) == (
        "schedule", "schedule.fired", NINE, schedule.trigger_id,
    )  # fmt: skip
    assert (event.ce_source, event.ce_id) == ("hourly", f"{schedule.task_id}:2025-03-07T09:00:00+00:00")
    instant = "2025-03-07T09:00:00+00:00"
    assert event.data == {
        "schedule": "hourly", "nominal": instant, "due": instant, "backfill": str(backfill.pk), "data": {"to": "ada"},
    }  # fmt: skip


@pytest.mark.parametrize("anchor", [NINE + 7 * MINUTE, NINE - 30 * DAY + 7 * MINUTE, NINE + 30 * DAY + 7 * MINUTE])
def test_an_intervals_grid_goes_on_on_both_sides_of_its_anchor(anchor: datetime) -> None:
    schedule = make_schedule(every=20)
    Schedule.objects.update(anchor_at=anchor)
    schedule.refresh_from_db()

    begin(schedule, 1)

    assert nominals() == [NINE + minutes * MINUTE for minutes in (7, 27, 47)]


def test_times_that_its_policy_closes_are_no_part_of_the_range() -> None:
    schedule = make_schedule(active_hours="09:00-12:00")
    PeriodicTask.objects.update(start_time=NINE + HOUR)

    backfill = begin(settled(schedule.task), 24)

    assert nominals() == [NINE + HOUR, NINE + 2 * HOUR]
    assert backfill.total == 2


@pytest.mark.parametrize(
    ("terms", "field", "message"),
    [
        ({"end": NINE}, "end", "ends before it begins"),
        ({"end": datetime(2100, 1, 1, tzinfo=UTC)}, "end", "must be past"),
        ({"start": NINE + MINUTE / 2, "end": NINE + MINUTE}, "start", "no nominal time"),
        ({"start": NINE - 4000 * DAY}, "start", "longer than ten years"),
        ({"start": datetime.min}, "start", "leaves the calendar"),
        ({"start": NINE - 300 * DAY}, "end", "more than 100,000"),
        ({"at_once": 0}, "at_once", "from 1 to 1000"),
        ({"at_once": 1001}, "at_once", "from 1 to 1000"),
        ({"priority": 10}, "priority", "9 least"),
    ],
)
def test_an_invalid_backfill_is_refused_with_its_field(terms: dict[str, Any], field: str, message: str) -> None:
    schedule = make_schedule("*/2 * * * *", "Europe/Vienna")

    with pytest.raises(RuleError, match=message) as refusal:
        start_backfill(schedule, **{"start": NINE, "end": NINE + HOUR, "by": "cli:ada", **terms})

    assert refusal.value.field == field
    assert not Backfill.objects.exists()


def test_an_ordinary_periodic_task_is_refused_with_the_reason() -> None:
    schedule = make_schedule()
    Schedule.objects.update(trigger=None)

    with pytest.raises(RuleError, match="ordinary periodic task"):
        begin(settled(schedule.task))


def test_a_heartbeat_has_no_backfill() -> None:
    schedule = make_schedule(every=30, kind="heartbeat", pace_min=5 * MINUTE, pace_max=HOUR)

    with pytest.raises(RuleError, match="heartbeat"):
        begin(schedule)


def test_a_disabled_trigger_is_refused_and_a_paused_schedule_is_not() -> None:
    schedule = make_schedule()
    PeriodicTask.objects.update(enabled=False)
    schedule = settled(schedule.task)

    begin(schedule, 1)
    Trigger.objects.update(enabled=False)

    with pytest.raises(TriggerDisabled):
        begin(settled(schedule.task))
    assert nominals() == [NINE]


# Once


def test_a_time_that_has_fired_is_there_and_not_fired_again() -> None:
    schedule = make_schedule()
    begin(schedule, 2)

    second = begin(schedule, 3)

    assert nominals() == [NINE, NINE + HOUR, NINE + 2 * HOUR]
    assert now_of(second)[1] == Progress(total=3, taken=3, there=2, open=1)
    assert not Redelivery.objects.exists()


def test_again_fires_times_that_have_fired() -> None:
    schedule = make_schedule()
    begin(schedule, 2)

    begin(schedule, 3, again=True)

    assert sorted(nominals()) == [NINE, NINE, NINE + HOUR, NINE + HOUR, NINE + 2 * HOUR]


def test_beat_does_not_fire_a_time_that_a_backfill_has_fired() -> None:
    schedule = make_schedule(catch_up="all")
    begin(schedule, 1)
    Schedule.objects.update(next_fire_at=NINE, due_at=NINE, accounted_until=NINE - MINUTE)

    due_schedules.fire_due(NINE + MINUTE)

    assert nominals() == [NINE]


def test_a_backfill_changes_nothing_of_its_schedule() -> None:
    schedule = make_schedule()
    before = Schedule.objects.values().get()

    begin(schedule, 2)

    assert Schedule.objects.values().get() == before
    assert PeriodicTask.objects.get().total_run_count == 0


# A few at a time


def test_a_backfill_keeps_a_bounded_number_of_events_ahead_of_its_runs() -> None:
    schedule = make_schedule("* * * * *")
    start_backfill(schedule, start=NINE, end=NINE + 2 * HOUR, at_once=2, by="cli:ada")

    assert not advance()  # there is no room for more
    assert len(nominals()) == 2 + AHEAD
    dispatch_all()
    assert not advance()
    assert len(nominals()) == 2 + AHEAD

    for _ in range(3):
        end(start())
    advance()

    assert len(nominals()) == 5 + AHEAD
    assert nominals() == [NINE + minute * MINUTE for minute in range(5 + AHEAD)]


def test_times_that_have_fired_take_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triggers.schedules.backfill.advance.BATCH", 10)
    schedule = make_schedule("* * * * *")
    for first in (NINE, NINE + HOUR):
        start_backfill(schedule, start=first, end=first + 50 * MINUTE, by="cli:ada")
    while advance():
        pass
    second = start_backfill(schedule, start=NINE, end=NINE + 2 * HOUR, by="cli:ada")

    while advance():
        pass

    assert now_of(second)[1] == Progress(total=120, taken=120, there=100, open=20)


def test_runs_of_a_backfill_have_a_key_a_limit_and_a_priority_of_their_own() -> None:
    schedule = make_schedule()
    backfill = begin(schedule, 3, at_once=2, priority=7)

    dispatch_all()

    runs = runs_in_order()
    assert schedule.trigger_id is not None
    assert {run.key for run in runs} == {key_of(schedule.trigger_id, backfill.pk)}
    assert [(run.slot, run.ready_at is not None) for run in runs] == [(1, True), (2, True), (None, False)]
    assert {(run.priority, run.policy["priority"], run.policy["overlap"], run.key_limit) for run in runs} == {
        (7, 7, "queue", 2)
    }


def test_backfilled_runs_start_one_after_the_other_in_the_order_of_their_nominal_times() -> None:
    begin(make_schedule(), 3)
    dispatch_all()

    seen = []
    while claimed := claim():
        assert claim() is None
        seen += list(claimed.event_ids)
        end(claimed)

    assert seen == list(Event.objects.order_by("time").values_list("id", flat=True))


def test_a_live_run_of_the_trigger_and_its_backfill_are_independent() -> None:
    trigger = make_trigger(types=["visitor.*"], overlap="skip")
    make_event()
    dispatch_all()
    begin(make_schedule(trigger=trigger), 1)

    dispatch_all()
    make_event()
    dispatch_all()

    assert len(runs_in_order()) == 2
    assert Decision.objects.get().outcome == "overlap"  # of the second visitor, by the first one


def test_rates_and_windows_of_the_trigger_do_not_count_for_a_backfill() -> None:
    trigger = make_trigger(types=[], policy={"rate": "1/h", "debounce": 60, "priority": 2})
    begin(make_schedule(trigger=trigger), 3, at_once=3)

    dispatch_all()

    assert [(run.due_at, run.ready_at is not None, run.priority) for run in runs_in_order()] == [(None, True, 9)] * 3


def test_urgent_runs_go_before_those_of_a_backfill() -> None:
    trigger = make_trigger(types=["visitor.*"])
    begin(make_schedule(trigger=trigger), 1)
    event = make_event()
    dispatch_all()

    assert list(start().event_ids) == [event.pk]


def test_dispatch_of_other_events_has_no_query_for_backfills() -> None:
    schedule = make_schedule(trigger=make_trigger())
    done = begin(schedule, 1)
    cancel_backfill(done, by="cli:ada")
    make_event()
    make_event(source_id=builtin_source("schedule"), type="schedule.fired", target_id=schedule.trigger_id)

    with CaptureQueriesContext(connection) as captured:
        dispatch(Rules())

    assert not [query for query in captured.captured_queries if TERMS.split("WHERE")[0] in query["sql"]]
    assert len(runs_in_order()) == 2


# What came of it


def succeed() -> None:
    end(start())


def fail() -> None:
    end(start(), Permanent("no"))


def call_off() -> None:
    cancel(runs_in_order()[0].pk, by="cli:ada")


@pytest.mark.parametrize(("ends", "outcome"), [(succeed, "succeeded"), (fail, "failed"), (call_off, "cancelled")])
def test_the_end_of_its_run_is_the_outcome_of_a_nominal_time(ends: Callable[[], None], outcome: str) -> None:
    backfill = begin(make_schedule(), 1)
    dispatch_all()
    advance()
    assert now_of(backfill) == ("running", Progress(total=1, taken=1, open=1))

    ends()
    advance()

    status, counted = now_of(backfill)
    assert (status, backfill.ended_at is not None) == ("done", True)
    assert (counted.ended, counted.share, getattr(counted, outcome)) == (1, 1.0, 1)


def test_an_event_without_a_run_is_refused() -> None:
    backfill = begin(make_schedule(), 1)
    Trigger.objects.update(enabled=False)
    dispatch_all()

    advance()

    assert now_of(backfill) == ("done", Progress(total=1, taken=1, refused=1))


def test_a_held_nominal_time_stays_open_and_goes_on_when_its_trigger_is_resumed() -> None:
    schedule = make_schedule()
    backfill = begin(schedule, 2)
    trigger = pause(Trigger.objects.get(), reason="broken", by="cli:ada")
    dispatch_all()
    advance()

    obstacle = "trigger greeter is paused"
    assert now_of(backfill) == ("running", Progress(total=2, taken=2, open=2, held=2, obstacle=obstacle))

    resume(trigger, by="cli:ada")
    advance()
    dispatch_all()
    advance()

    assert now_of(backfill) == ("running", Progress(total=2, taken=2, open=2))
    assert {run.key for run in runs_in_order()} == {key_of(trigger.pk, backfill.pk)}


def test_held_and_dropped_is_refused() -> None:
    backfill = begin(make_schedule(), 1)
    trigger = pause(Trigger.objects.get(), reason="broken", by="cli:ada")
    dispatch_all()

    resume(trigger, held="drop", by="cli:ada")
    dispatch_all()
    advance()

    assert now_of(backfill) == ("done", Progress(total=1, taken=1, refused=1))


@pytest.mark.parametrize("fields", [{"enabled": False}, {"paused_at": NINE}])
def test_while_its_trigger_is_off_nothing_is_fired(fields: dict[str, Any]) -> None:
    schedule = make_schedule()
    backfill = start_backfill(schedule, start=NINE, end=NINE + HOUR, by="cli:ada")
    Trigger.objects.update(**fields)

    assert not advance()

    assert not nominals()
    assert now_of(backfill)[1].obstacle.startswith("trigger greeter is ")


def test_a_backfill_of_a_schedule_with_an_invalid_rule_shows_the_obstacle() -> None:
    schedule = make_schedule()
    backfill = start_backfill(schedule, start=NINE, end=NINE + HOUR, by="cli:ada")
    CrontabSchedule.objects.update(hour="25")
    settled(schedule.task)

    assert not advance()

    assert "cannot be carried out" in now_of(backfill)[1].obstacle
    assert not nominals()


def test_an_edit_counts_for_later_times_and_corrects_the_total() -> None:
    schedule = make_schedule("* * * * *")
    backfill = begin(schedule, 2)
    CrontabSchedule.objects.update(minute="0")
    settled(schedule.task)
    dispatch_all()

    for _ in range(3):
        while claimed := claim():
            end(claimed)
        advance()
        dispatch_all()

    status, counted = now_of(backfill)
    assert (status, counted.total, counted.succeeded) == ("done", 1 + AHEAD + 1, 1 + AHEAD + 1)
    assert nominals()[-2:] == [NINE + AHEAD * MINUTE, NINE + HOUR]


# Cancelling


def test_a_cancelled_backfill_makes_no_further_run_and_running_ones_finish() -> None:
    backfill = begin(make_schedule(), 4, at_once=2)
    dispatch_all()
    claimed = start()

    cancelled = cancel_backfill(backfill, by="cli:ada")

    assert (cancelled.status, cancelled.ended_at) == ("cancelled", None)
    obstacle = "it was cancelled; what had begun goes on to its end"
    assert now_of(backfill)[1] == Progress(total=4, taken=4, cancelled=3, open=1, obstacle=obstacle)
    assert [run.status for run in runs_in_order()] == ["running", "cancelled", "cancelled", "cancelled"]

    end(claimed)
    advance()
    assert now_of(backfill)[1] == Progress(total=4, taken=4, cancelled=3, succeeded=1)
    assert backfill.ended_at is not None


def test_cancelling_drops_undispatched_events() -> None:
    schedule = make_schedule("* * * * *")
    backfill = begin(schedule, 2)

    cancel_backfill(backfill, by="cli:ada")
    dispatch_all()
    advance()

    assert not Run.objects.exists()
    assert not Event.objects.filter(dispatched_at=None).exists()
    assert set(Decision.objects.values_list("outcome", "reason")) == {
        ("dropped", "its backfill was cancelled by cli:ada")
    }
    assert now_of(backfill) == ("cancelled", Progress(total=120, taken=1 + AHEAD, cancelled=1 + AHEAD))
    assert len(nominals()) == 1 + AHEAD


@pytest.mark.parametrize("is_offered", [False, True])
def test_held_events_do_not_return_after_a_cancellation(is_offered: bool) -> None:
    backfill = begin(make_schedule(), 2)
    trigger = pause(Trigger.objects.get(), reason="broken", by="cli:ada")
    dispatch_all()

    if is_offered:
        resume(trigger, by="cli:ada")
        cancel_backfill(backfill, by="cli:ada")
    else:
        cancel_backfill(backfill, by="cli:ada")
        resume(trigger, by="cli:ada")
    dispatch_all()

    assert not Run.objects.exists()
    assert now_of(backfill) == ("cancelled", Progress(total=2, taken=2, cancelled=2))


def test_a_batch_that_has_read_its_events_makes_no_run_of_a_cancelled_backfill(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backfill = begin(make_schedule(), 2)

    def cancelled_meanwhile(place: str) -> None:
        if place == "before_waits_are_looked_up":
            cancel_backfill(backfill, by="cli:ada")

    monkeypatch.setattr(dispatching, "failpoint", cancelled_meanwhile)
    dispatch(Rules())

    assert not Run.objects.exists()


def test_a_run_that_had_no_end_when_a_dead_process_cancelled_is_seen_to_by_beat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backfill = begin(make_schedule(), 2)
    dispatch_all()
    with monkeypatch.context() as patch:
        patch.setattr("triggers.schedules.backfill.advance._advance", lambda id: False)  # it died after its commit
        cancel_backfill(backfill, by="cli:ada")
    assert [run.status for run in runs_in_order()] == ["queued", "queued"]

    advance()

    assert [run.status for run in runs_in_order()] == ["cancelled", "cancelled"]
    assert now_of(backfill)[1] == Progress(total=2, taken=2, cancelled=2)


def test_starting_and_cancelling_are_in_the_audit_log_and_cancelling_counts_once() -> None:
    backfill = begin(make_schedule(), 1)
    cancel_backfill(backfill, by="cli:ada")

    with pytest.raises(IllegalState, match="cancelled already"):
        cancel_backfill(backfill, by="cli:bob")

    assert list(AuditEntry.objects.order_by("id").values_list("by", "action", "kind")) == [
        ("cli:ada", "backfill", "schedule"),
        ("cli:ada", "cancel", "backfill"),
    ]


# Afterwards


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_replay_of_its_event_goes_by_the_triggers_own_rules(is_cancelled: bool) -> None:
    schedule = make_schedule()
    backfill = begin(schedule, 1)
    if is_cancelled:
        cancel_backfill(backfill, by="cli:ada")
    else:
        dispatch_all()
        start()
    replay(Event.objects.get(), by="cli:ada")

    dispatch_all()

    run = Run.objects.exclude(replay_id=NIL).get()
    assert (run.key, run.priority, run.slot) == (f"{schedule.trigger_id}:", 5, 1)


def test_a_run_requeued_after_the_end_runs() -> None:
    backfill = begin(make_schedule(), 1)
    dispatch_all()
    fail()
    advance()

    requeue(Run.objects.get().pk, by="cli:ada")
    succeed()
    advance()

    assert Run.objects.get().status == "succeeded"
    assert now_of(backfill) == ("done", Progress(total=1, taken=1, failed=1))  # as it ended for the backfill


def test_a_deleted_schedule_takes_its_backfills_along() -> None:
    schedule = make_schedule()
    begin(schedule, 2)

    PeriodicTask.objects.get().delete()

    assert not advance()
    assert not Backfill.objects.exists()


def test_the_range_may_end_now() -> None:
    schedule = make_schedule("* * * * *")
    now = database_now()

    backfill = start_backfill(schedule, start=now - 10 * MINUTE, end=now, by="cli:ada")

    assert backfill.total == 10


def ended_ago(backfill: Backfill, days: int) -> None:
    ended_at = database_now() - days * DAY
    Backfill.objects.filter(pk=backfill.pk).update(status="done", ended_at=ended_at)


def test_a_backfill_that_ended_long_ago_goes_with_its_ticks_and_no_other_does() -> None:
    schedule = make_schedule()
    old, young, underway = (begin(schedule, 2, again=True) for _ in range(3))
    ended_ago(old, 91)
    ended_ago(young, 89)

    counted = {step.name: step.count() for step in steps()}
    removed = {one.name: one.rows for one in retention.prune() if one.rows}

    assert (counted["backfills.ticks"], counted["backfills"]) == (2, 1)
    assert removed == {"backfills.ticks": 2, "backfills": 1}
    assert set(Backfill.objects.values_list("pk", flat=True)) == {young.pk, underway.pk}
    assert BackfillTick.objects.count() == 4


# Of what is forgotten


def older_than_its_events(settings: Any) -> tuple[Schedule, datetime]:
    """A schedule made a year ago; events are kept for 30 days."""
    settings.WAKEFUL_KEEP_EVENTS = 30 * DAY
    schedule = make_schedule()
    Schedule.objects.filter(pk=schedule.pk).update(created_at=database_now() - 365 * DAY)
    schedule.refresh_from_db()
    return schedule, database_now()


def test_a_range_before_the_record_of_fires_is_refused_without_again(settings: Any) -> None:
    schedule, now = older_than_its_events(settings)
    old: dict[str, Any] = {"start": now - 40 * DAY, "end": now - 40 * DAY + 3 * HOUR}

    with pytest.raises(RuleError, match="WAKEFUL_KEEP_EVENTS.*again") as refusal:
        start_backfill(schedule, **old, by="cli:test")
    assert refusal.value.field == "start"

    assert start_backfill(schedule, **old, again=True, by="cli:test").total == 3
    assert start_backfill(schedule, start=now - 29 * DAY, end=now - 29 * DAY + 3 * HOUR, by="cli:test").total == 3


def test_a_backfill_that_falls_behind_the_record_of_fires_stops_and_shows_it(settings: Any) -> None:
    schedule, now = older_than_its_events(settings)
    backfill = start_backfill(schedule, start=now - 29 * DAY, end=now - 29 * DAY + 3 * HOUR, by="cli:test")

    settings.WAKEFUL_KEEP_EVENTS = 20 * DAY
    advance()

    assert not Event.objects.filter(type="schedule.fired")
    assert "no longer known" in progress(backfill).obstacle


# By the API and the command line


def test_a_post_starts_a_backfill_and_it_can_be_looked_at() -> None:
    schedule = make_schedule("0 9 * * *", "Europe/Vienna")
    body = {"start": "2025-03-07", "end": "2025-03-09T00:00+01:00", "at_once": 2, "priority": 8}
    api = Api()

    answer = api.post(f"schedules/{schedule.pk}/backfill/", body)
    advance()
    seen = api.get(f"backfills/{answer.body['id']}/").body

    assert (answer.status, answer.body["progress"]["total"]) == (202, 2)
    assert {name: seen[name] for name in ("schedule", "start", "end", "at_once", "priority", "again", "status", "by")} == {
        "schedule": schedule.pk, "start": "2025-03-06T23:00:00Z", "end": "2025-03-08T23:00:00Z", "at_once": 2,
        "priority": 8, "again": False, "status": "running", "by": "token:ci",
    }  # fmt: skip
    assert (seen["progress"]["taken"], seen["progress"]["open"]) == (2, 2)


def test_backfills_are_listed_newest_first_and_by_schedule() -> None:
    schedule = make_schedule()
    first, second = begin(schedule, 1), begin(schedule, 2)
    api = Api()

    listed = api.get("backfills/", schedule=schedule.pk).body["results"]

    assert [(one["id"], one["progress"]["there"]) for one in listed] == [(str(second.pk), 1), (str(first.pk), 0)]
    assert api.get("backfills/", schedule=schedule.pk + 1).body["results"] == []


def test_a_page_of_backfills_costs_a_fixed_number_of_queries() -> None:
    schedule = make_schedule()
    api = Api()

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert api.get("backfills/").status == 200
        return len(captured)

    ended_ago(begin(schedule, 1), 0)
    queries()  # the token's first use is written down
    before = queries()
    for _ in range(3):
        ended_ago(begin(schedule, 1, again=True), 0)

    assert queries() == before


def test_the_api_cancels_once() -> None:
    backfill = begin(make_schedule(), 1)
    api = Api()

    first, second = (api.post(f"backfills/{backfill.pk}/cancel/") for _ in range(2))

    assert (first.status, first.body["status"], first.body["progress"]["cancelled"]) == (200, "cancelled", 1)
    assert (second.status, second.body["status"]) == (409, "cancelled")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"start": "yesterday"}, "start"),
        ({"end": "2025-03-07T09:00"}, "end"),
        ({"agian": True}, "agian"),
    ],
)
def test_the_api_names_the_field_that_makes_no_sense(change: dict[str, Any], field: str) -> None:
    schedule = make_schedule()
    body = {"start": "2025-03-07T09:00", "end": "2025-03-07T12:00", **change}

    answer = Api().post(f"schedules/{schedule.pk}/backfill/", body)

    assert (answer.status, list(answer.body)) == (400, [field])
    assert not Backfill.objects.exists()


def test_starting_and_cancelling_need_a_permission_of_their_own() -> None:
    backfill = begin(make_schedule(), 1)
    paths = [f"schedules/{backfill.schedule_id}/backfill/", f"backfills/{backfill.pk}/cancel/"]
    reader = Api(["triggers.view_schedule", "triggers.view_backfill"], name="reader")
    granted = Group.objects.get(name="operator").permissions.values_list("content_type__app_label", "codename")
    operator = Api([f"{app}.{codename}" for app, codename in granted], name="operator")

    assert reader.get("backfills/").status == 200
    assert [reader.post(path).status for path in paths] == [403, 403]
    assert [operator.post(path).status for path in paths] == [400, 200]


def test_the_command_starts_a_backfill_by_the_schedules_name() -> None:
    make_schedule()
    out = StringIO()

    call_command(
        "backfill", "hourly", "--from", "2025-03-07T09:00", "--to", "2025-03-07T11:00", "--at-once", "2", "--again", "--json",
        stdout=out,
    )  # fmt: skip

    printed = json.loads(out.getvalue())
    backfill = Backfill.objects.get()
    assert (printed["id"], printed["progress"]["total"]) == (str(backfill.pk), 2)
    assert (backfill.at_once, backfill.again, backfill.start) == (2, True, NINE)


@pytest.mark.parametrize(
    ("schedule", "end", "message"),
    [("daily", "2025-03-08", "No such schedule"), ("hourly", "2025-03-06", "ends before")],
)
def test_the_command_shows_what_is_wrong(schedule: str, end: str, message: str) -> None:
    make_schedule()

    with pytest.raises(CommandError, match=message):
        call_command("backfill", schedule, "--from", "2025-03-07", "--to", end)


# Several Beats


@pytest.mark.django_db(transaction=True)
def test_any_number_of_beats_fire_each_nominal_time_once() -> None:
    schedule = make_schedule("* * * * *")
    backfill = start_backfill(schedule, start=NINE, end=NINE + 2 * HOUR, at_once=100, by="cli:ada")
    together = Barrier(3)

    def advance_for_a_while() -> None:
        try:
            together.wait(20)
            for _ in range(20):
                advance()
        finally:
            connection.close()

    beats = [Thread(target=advance_for_a_while) for _ in range(3)]
    for beat in beats:
        beat.start()
    for beat in beats:
        beat.join(60)

    assert nominals() == [NINE + minute * MINUTE for minute in range(120)]
    assert progress(backfill) == Progress(total=120, taken=120, open=120)
    assert not Redelivery.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_schedule_can_be_deleted_while_its_backfill_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = make_schedule()
    start_backfill(schedule, start=NINE, end=NINE + 3 * HOUR, by="cli:ada")
    fired, go_on = threading.Event(), threading.Event()
    failures: list[Exception] = []

    def about_to_commit(backfill: Backfill) -> None:
        fired.set()
        go_on.wait(20)

    def elsewhere(act: Callable[[], Any]) -> Thread:
        def on_a_connection_of_its_own() -> None:
            try:
                act()
            except Exception as error:
                failures.append(error)
            finally:
                connection.close()

        thread = Thread(target=on_a_connection_of_its_own)
        thread.start()
        return thread

    monkeypatch.setattr("triggers.schedules.backfill.advance._end_if_over", about_to_commit)
    beat = elsewhere(advance)
    assert fired.wait(20)
    person = elsewhere(lambda: delete_schedule(schedule, by="cli:ada"))
    eventually(lambda: fetch("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"))
    go_on.set()
    for thread in (beat, person):
        thread.join(20)

    assert not failures
    assert not Backfill.objects.exists()
    assert not BackfillTick.objects.exists()
