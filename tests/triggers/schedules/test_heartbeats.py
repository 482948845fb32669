"""A heartbeat comes every so often, unless its agent sets the time; however often it is woken meanwhile, it runs once more."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django_celery_beat.models import PeriodicTask

from agents import Agent, AgentRun, registry
from agents.exceptions import Permanent
from agents.kernel.effects import Effects, Pace
from runs.models import AuditEntry, OutboxMessage, Run
from runs.outbox import deliver_inside
from tests.support.durable import Lab, lab  # noqa: F401  (a fixture)
from tests.support.triggers import make_event, make_heartbeat, make_trigger
from tests.triggers.dispatch.test_overlap import claim
from tests.triggers.dispatch.test_races import locked
from triggers.dispatch.batch import dispatch
from triggers.dispatch.rules import Rules
from triggers.exceptions import RuleError
from triggers.models import Decision, Event, Revision, Schedule, Skip, Trigger
from triggers.schedules.agent_schedules import check_ahead
from triggers.schedules.edit import create_schedule
from triggers.schedules.firing import due_schedules
from triggers.schedules.heartbeats import set_pace
from triggers.schedules.plans import history_of
from triggers.schedules.rules.crontab import Cron
from triggers.schedules.rules.interval import Interval
from triggers.schedules.terms.policy import SchedulePolicy
from triggers.sources.manual import fire

pytestmark = pytest.mark.django_db

# Years ahead of the database's clock, which stamps edits: what is tested never depends on the day it is tested.
NINE = datetime(2050, 3, 7, 9, 0, tzinfo=UTC)  # a Monday
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
RUN = str(uuid4())


def a_heartbeat(slug: str = "watch", **columns: Any) -> Schedule:
    """Every 30 minutes, at :00 and :30, its pace from 5 minutes to 4 hours."""
    schedule = make_heartbeat(slug, **columns)
    Schedule.objects.filter(pk=schedule.pk).update(edited_at=NINE - HOUR)
    due_schedules.settle()
    return again(schedule)


def again(schedule: Schedule) -> Schedule:
    return Schedule.objects.select_related("task", "trigger").get(pk=schedule.pk)


def ask(schedule: Schedule, after: timedelta, reason: str = "") -> dict[str, Any]:
    """What the commit of a run that set its next check leaves behind."""
    return {"trigger": str(schedule.trigger_id), "run": RUN, "after": after.total_seconds(), "reason": reason}


def paced(schedule: Schedule, after: timedelta, reason: str = "", at: datetime = NINE + MINUTE) -> datetime | None:
    """The next time after a run that ended at `at` has set its pace."""
    set_pace([ask(schedule, after, reason)], now=at)
    return again(schedule).next_fire_at


def beat(until: datetime) -> list[datetime]:
    """Beat is there until then; the nominal times of all events so far."""
    while (next_due := due_schedules.find_due().next_due) and next_due <= until:
        due_schedules.fire_due(next_due)
    return [event.time for event in Event.objects.filter(type="schedule.fired").order_by("seq") if event.time]


def skipped() -> list[tuple[str, datetime, datetime, int | None]]:
    return list(Skip.objects.order_by("first").values_list("reason", "first", "last", "count"))


def put_off() -> list[dict[str, Any]]:
    return [message.payload for message in OutboxMessage.objects.filter(topic="pace")]


# The pace


def test_the_next_beat_comes_at_the_requested_time_and_the_grid_goes_on_from_there() -> None:
    schedule = a_heartbeat()
    assert beat(NINE) == [NINE - HOUR / 2, NINE]

    set_pace([ask(schedule, 2 * HOUR, "quiet night")], now=NINE + MINUTE)

    wanted = NINE + 2 * HOUR + MINUTE
    assert beat(wanted + HOUR)[2:] == [wanted, wanted + HOUR / 2, wanted + HOUR]
    assert skipped() == [("paced", NINE + HOUR / 2, NINE + 2 * HOUR, 4)]
    assert Skip.objects.get().detail == f"run {RUN}: quiet night"


def test_a_pace_keeps_the_earlier_definition_as_a_revision() -> None:
    schedule = a_heartbeat()
    beat(NINE)

    paced(schedule, 2 * HOUR)

    before, after = history_of(again(schedule))
    assert before.until == after.since == NINE + MINUTE
    assert before.plan and next(before.plan.raw(NINE - HOUR)) == NINE - HOUR / 2
    assert after.plan and next(after.plan.raw(NINE - HOUR)) == NINE + 2 * HOUR + MINUTE
    assert Revision.objects.get().by == f"run:{RUN}"


@pytest.mark.parametrize(
    ("requested", "given"),
    [(timedelta(), 5 * MINUTE), (MINUTE, 5 * MINUTE), (HOUR, HOUR), (timedelta(days=9), 4 * HOUR)],
)
def test_the_schedule_keeps_the_pace_within_bounds_and_records_both(requested: timedelta, given: timedelta) -> None:
    schedule = a_heartbeat()

    assert paced(schedule, requested, at=NINE - HOUR) == NINE - HOUR + given
    entry = AuditEntry.objects.get(action="pace", kind="schedule", object_id=str(schedule.pk))
    assert entry.by == f"run:{RUN}"
    assert (entry.detail["asked"], entry.detail["given"]) == (requested.total_seconds(), given.total_seconds())


def test_a_heartbeat_without_bounds_is_limited_by_the_loop_rate(settings: Any) -> None:
    settings.WAKEFUL_LOOP_RATE = "20/1m"
    schedule = a_heartbeat(pace_min=None, pace_max=None)

    assert paced(schedule, timedelta(), at=NINE - HOUR) == NINE - HOUR + timedelta(seconds=3)


def test_an_earlier_time_leaves_nothing_out() -> None:
    schedule = a_heartbeat()
    beat(NINE)

    assert paced(schedule, 10 * MINUTE) == NINE + 11 * MINUTE
    assert skipped() == []
    assert beat(NINE + HOUR)[2:] == [NINE + 11 * MINUTE, NINE + 41 * MINUTE]


def test_outside_of_its_active_hours_it_waits_for_the_next() -> None:
    schedule = a_heartbeat(active_hours="mon-fri 09:00-17:00")
    beat(NINE + 7 * HOUR)
    tuesday = NINE + timedelta(days=1)

    assert paced(schedule, 4 * HOUR, at=NINE + 7 * HOUR + MINUTE) == tuesday
    assert beat(tuesday + HOUR / 2)[-2:] == [tuesday, tuesday + HOUR / 2]
    assert skipped()[-1] == ("paced", NINE + 7 * HOUR + HOUR / 2, tuesday - HOUR / 2, 33)


def test_a_spread_moves_the_requested_time_like_any_other_time() -> None:
    schedule = a_heartbeat(spread=MINUTE)
    beat(NINE + MINUTE)

    wanted = paced(schedule, HOUR, at=NINE + 2 * MINUTE)

    due_at = again(schedule).due_at
    assert wanted == NINE + HOUR + 2 * MINUTE
    assert due_at is not None and wanted < due_at < wanted + MINUTE


def test_the_pace_of_the_later_run_counts() -> None:
    schedule = a_heartbeat()
    beat(NINE)

    set_pace([ask(schedule, HOUR), ask(schedule, 2 * HOUR)], now=NINE + MINUTE)
    assert again(schedule).next_fire_at == NINE + 2 * HOUR + MINUTE

    assert paced(schedule, HOUR, at=NINE + 2 * MINUTE) == NINE + HOUR + 2 * MINUTE


def test_an_edit_after_it_holds_from_the_edit_on() -> None:
    schedule = a_heartbeat()
    beat(NINE)
    paced(schedule, 4 * HOUR)

    schedule.task.interval.__class__.objects.update(every=10)
    Schedule.objects.filter(pk=schedule.pk).update(edited_at=NINE + HOUR)
    Revision.objects.filter(until__lt=NINE).update(until=NINE + HOUR)
    due_schedules.settle()

    assert again(schedule).next_fire_at == NINE + HOUR + 10 * MINUTE


# Beat goes first, and the later pace counts


def test_an_edit_that_beat_has_not_seen_is_left_to_it_first() -> None:
    schedule = a_heartbeat()
    beat(NINE)
    Schedule.objects.filter(pk=schedule.pk).update(jitter=MINUTE)

    set_pace([ask(schedule, 2 * HOUR, "quiet")], now=NINE + MINUTE)
    [later] = put_off()
    assert again(schedule).next_fire_at == NINE + HOUR / 2

    Schedule.objects.filter(pk=schedule.pk).update(edited_at=NINE)
    Revision.objects.update(until=NINE)
    due_schedules.settle()
    set_pace([later], now=NINE + 2 * MINUTE)

    assert again(schedule).next_fire_at == NINE + 2 * HOUR + MINUTE  # counted from the end of the run


def test_a_time_that_is_due_fires_and_decides_again() -> None:
    schedule = a_heartbeat()
    beat(NINE)

    set_pace([ask(schedule, 2 * HOUR)], now=NINE + HOUR / 2)
    [later] = put_off()
    assert beat(NINE + HOUR / 2)[-1] == NINE + HOUR / 2
    set_pace([later], now=NINE + HOUR / 2 + MINUTE)

    assert again(schedule).next_fire_at == NINE + HOUR
    assert skipped() == []


def test_a_pace_that_was_deferred_for_a_stale_heartbeat_moves_each_heartbeat_once() -> None:
    schedule, other = a_heartbeat(), a_heartbeat("other")
    Schedule.objects.filter(pk=other.pk).update(trigger=schedule.trigger)
    beat(NINE)
    Schedule.objects.filter(pk=other.pk).update(stale=True)

    set_pace([ask(schedule, HOUR)], now=NINE + MINUTE)
    [later] = put_off()
    Schedule.objects.filter(pk=other.pk).update(stale=False)
    set_pace([later], now=NINE + 2 * MINUTE)

    assert [again(one).next_fire_at for one in (schedule, other)] == [NINE + HOUR + MINUTE] * 2
    assert AuditEntry.objects.filter(action="pace").count() == 2


def test_a_later_edit_cancels_a_deferred_pace() -> None:
    schedule = a_heartbeat()
    beat(NINE)
    later = {**ask(schedule, 2 * HOUR), "since": (NINE + MINUTE).isoformat()}
    Schedule.objects.filter(pk=schedule.pk).update(spread=MINUTE)
    due_schedules.settle()
    Revision.objects.update(until=NINE + 2 * MINUTE)

    set_pace([later], now=NINE + 3 * MINUTE)

    assert again(schedule).next_fire_at == NINE + HOUR / 2


@pytest.mark.django_db(transaction=True)
def test_a_locked_heartbeat_is_paced_later() -> None:
    schedule = a_heartbeat()
    beat(NINE)

    with locked(PeriodicTask.objects.filter(pk=schedule.task_id)):
        set_pace([ask(schedule, 2 * HOUR)], now=NINE + MINUTE)

    [later] = put_off()
    set_pace([later], now=NINE + 2 * MINUTE)
    assert again(schedule).next_fire_at == NINE + 2 * HOUR + MINUTE


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda schedule: PeriodicTask.objects.filter(pk=schedule.task_id).update(enabled=False), "switched off"),
        (lambda schedule: Schedule.objects.filter(pk=schedule.pk).update(kind="schedule", pace_min=None, pace_max=None), "no heartbeat"),
        (lambda schedule: schedule.trigger.delete(), "no heartbeat"),
    ],
)  # fmt: skip
def test_a_pace_that_nothing_can_have_is_dropped_and_that_is_recorded(change: Any, message: str) -> None:
    schedule = a_heartbeat()
    change(schedule)
    due_schedules.settle()

    set_pace([ask(schedule, 2 * HOUR)], now=NINE)

    assert put_off() == []
    assert message in AuditEntry.objects.get(action="drop").detail["reason"]


# The pace that a run sets


def test_only_a_run_of_a_heartbeat_sets_its_pace() -> None:
    with pytest.raises(Permanent, match=r"no heartbeat.*run\.wake_in"):
        check_ahead(make_trigger("plain").pk, Effects(paces=[Pace(after=HOUR)]))
    with pytest.raises(Permanent, match="no trigger of its own"):
        check_ahead(None, Effects(paces=[Pace(after=HOUR)]))

    check_ahead(a_heartbeat().trigger_id, Effects(paces=[Pace(after=HOUR)]))


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("durable", [True, False])
def test_a_run_that_succeeds_sets_the_pace_once(lab: Lab, durable: bool) -> None:  # noqa: F811
    schedule = a_heartbeat("durable")

    def body(run: AgentRun) -> None:
        run.next_check("10m")
        run.next_check("2h", "quiet")
        if durable:
            run.sleep("1m")

    run = lab.run(body, trigger_id=schedule.trigger_id, declared={"durable": durable}, policy={"durable": durable})
    run = lab.later(run) if durable else run

    assert run.status == "succeeded"
    entry = AuditEntry.objects.get(action="pace")
    next_fire = again(schedule).next_fire_at
    assert next_fire is not None
    assert entry.detail["reason"] == "quiet"
    assert 2 * HOUR - MINUTE < next_fire - entry.at < 2 * HOUR + MINUTE


@pytest.mark.django_db(transaction=True)
def test_a_failed_run_sets_no_pace(lab: Lab) -> None:  # noqa: F811
    schedule = a_heartbeat("durable")

    def body(run: AgentRun) -> None:
        run.next_check("2h")
        raise ValueError("no")

    lab.run(body, trigger_id=schedule.trigger_id, declared={"durable": False}, policy={"durable": False})

    assert again(schedule).next_fire_at == schedule.next_fire_at


# Wakes that coalesce


def wake_it(trigger: Trigger) -> None:
    """By the clock, by hand and by a wake it had set itself."""
    beat(NINE)
    fire(trigger, by="ada")
    payload = {"trigger": str(trigger.pk), "run": str(uuid4()), "name": "1", "data": None, "reason": ""}
    OutboxMessage.objects.create(topic="wakeup", key=str(trigger.pk), payload=payload)
    deliver_inside(10)
    make_event(target_id=trigger.pk)
    dispatch(Rules())


def test_all_wakes_during_a_queued_run_join_that_run() -> None:
    trigger = a_heartbeat().trigger
    assert trigger is not None

    wake_it(trigger)

    run = Run.objects.get()
    assert len(run.event_ids) == Event.objects.count() == 5
    assert set(Decision.objects.values_list("outcome", flat=True)) == {"joined"}


def test_all_wakes_during_a_running_run_join_one_further_run() -> None:
    trigger = a_heartbeat(agent="greeter").trigger
    assert trigger is not None
    fire(trigger, by="ada")
    dispatch(Rules())
    assert claim() is not None

    wake_it(trigger)

    running, further = Run.objects.order_by("seq")
    assert (running.status, further.status, further.ready_at) == ("running", "queued", None)
    assert len(further.event_ids) == 5


def test_a_heartbeat_made_by_a_person_coalesces_its_wakes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._agents, "watcher", Agent(name="watcher", body=lambda run: None))
    policy = SchedulePolicy(kind="heartbeat", pace_min=MINUTE, pace_max=HOUR)

    made = create_schedule(name="watch", rule=Interval(every=HOUR), agent="watcher", policy=policy, by="ada")

    assert made.trigger and made.trigger.overlap == Trigger.Overlap.QUEUE_ONE
    with pytest.raises(RuleError, match="needs an interval"):
        create_schedule(name="daily", rule=Cron.parse("0 9 * * *"), agent="watcher", policy=policy, by="ada")


def test_a_wake_by_hand_leaves_its_clock_alone() -> None:
    schedule = a_heartbeat()

    fire(schedule.trigger, by="ada")  # type: ignore[arg-type]
    dispatch(Rules())

    assert again(schedule).next_fire_at == schedule.next_fire_at


def test_beat_is_notified_only_of_an_earlier_time() -> None:
    schedule = a_heartbeat()
    beat(NINE)

    with CaptureQueriesContext(connection) as later:
        paced(schedule, 2 * HOUR)
    with CaptureQueriesContext(connection) as sooner:
        paced(schedule, 5 * MINUTE, at=NINE + 2 * MINUTE)

    notified = [any("pg_notify" in query["sql"] for query in queries) for queries in (later, sooner)]
    assert notified == [False, True]
