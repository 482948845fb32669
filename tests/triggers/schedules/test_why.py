"""Why did this not run at 09:00? Every instant of a schedule has an honest answer."""

import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.db import connection
from django_celery_beat.models import ClockedSchedule, CrontabSchedule, IntervalSchedule, PeriodicTask

from runs.db.sql import database_now
from runs.models import NIL, AuditEntry, Worker
from runs.models.audit import record
from tests.support.old_rows import date_entries
from tests.support.runs import make_run
from tests.support.triggers import make_trigger
from triggers.models import Decision, Event, ExclusionCalendar, Revision, Schedule, Skip, Trigger
from triggers.schedules.backfill.advance import advance
from triggers.schedules.backfill.start import start_backfill
from triggers.schedules.explain.why import Verdict, WhyAnswer, why
from triggers.schedules.firing import due_schedules
from triggers.schedules.heartbeats import set_pace
from triggers.schedules.plans import Held, history_of

pytestmark = [pytest.mark.sampled, pytest.mark.long, pytest.mark.django_db]

VIENNA = ZoneInfo("Europe/Vienna")
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
MONDAY = datetime(2050, 3, 7, tzinfo=UTC)
NINE = MONDAY + 8 * HOUR  # in Vienna
LONG_AGO = datetime(2049, 1, 1, tzinfo=UTC)


def make_schedule(
    cron: str = "0 9 * * *",
    *,
    zone: str = "Europe/Vienna",
    since: datetime = MONDAY,
    trigger: Trigger | None = None,
    **task: Any,
) -> Schedule:
    """A schedule of a crontab that was made and settled at `since`."""
    minute, hour, day, month, weekday = cron.split()
    rule = CrontabSchedule.objects.create(
        minute=minute, hour=hour, day_of_month=day, month_of_year=month, day_of_week=weekday, timezone=zone
    )
    return made(PeriodicTask.objects.create(name="digest", task="t", crontab=rule, **task), since, trigger)


def made(task: PeriodicTask, since: datetime, trigger: Trigger | None = None) -> Schedule:
    trigger = trigger or make_trigger("digest", types=[])
    Schedule.objects.filter(task=task).update(trigger=trigger, created_at=since, edited_at=since)
    return beat(Schedule.objects.get(task=task), since)


def edit(schedule: Schedule, at: datetime, by: str = "", **fields: Any) -> Schedule:
    """Change columns of its rows, as at another time than now; who did it is in the audit log."""
    own = {name: value for name, value in fields.items() if hasattr(Schedule, name)}
    task = {name: value for name, value in fields.items() if name not in own}
    if own:
        Schedule.objects.filter(pk=schedule.pk).update(**own)
    if task:
        PeriodicTask.objects.filter(pk=schedule.task_id).update(**task)
    if by:
        note = {"note": schedule.paused_note} if schedule.paused_note else {}
        record(by, "edit", schedule, **note)
        date_entries(AuditEntry.objects.filter(at__lt=LONG_AGO), at)
    return dated(schedule, at)


def dated(schedule: Schedule, at: datetime) -> Schedule:
    """Let every edit since the last call have been made at another time than now."""
    if Revision.objects.filter(schedule=schedule, until__lt=LONG_AGO).update(until=at):
        Schedule.objects.filter(pk=schedule.pk).update(edited_at=at)
    return fresh(schedule)


def beat(schedule: Schedule, now: datetime) -> Schedule:
    """Let Beat do at an instant what there is to do."""
    due_schedules.settle(now)
    while due_schedules.fire_due(now):
        pass
    return dated(schedule, now)


def fresh(schedule: Schedule) -> Schedule:
    return Schedule.objects.select_related("task", "trigger").get(pk=schedule.pk)


def ask(schedule: Schedule, at: datetime | str, *, now: datetime = NINE + 30 * DAY, **options: Any) -> WhyAnswer:
    at = datetime.fromisoformat(at) if isinstance(at, str) else at
    return why(fresh(schedule), at, now=now, **options)


def alive(since: datetime, until: datetime) -> None:
    """A Beat that ran from one instant to another."""
    Worker.objects.create(
        kind="beat",
        host="a",
        pid=1,
        version="1",
        started_at=since,
        seen_at=until,
        stopped_at=until,
        stopped_reason="stopped",
    )


# It fired


def test_a_time_that_ran_links_to_its_run() -> None:
    schedule = beat(make_schedule(), NINE)
    event = Event.objects.get()
    run = make_run(status="succeeded", event_id=event.pk, trigger="digest", trigger_id=schedule.trigger_id)

    answer = ask(schedule, "2050-03-07T09:00")

    assert answer.verdict == Verdict.RAN
    assert answer.text.startswith("It did run: it fired at ") and "its run succeeded" in answer.text
    assert (answer.nominal, answer.event_id, answer.run_id) == (NINE, event.pk, run.pk)


def test_a_run_that_waited_for_a_worker_shows_how_long() -> None:
    schedule = beat(make_schedule(), NINE)
    event = Event.objects.get()
    fields: dict[str, Any] = {
        "trigger": "digest",
        "trigger_id": schedule.trigger_id,
        "started_at": event.received_at + 10 * MINUTE,
    }
    make_run(status="failed", error="no ink\nat all", event_id=event.pk, **fields)

    answer = ask(schedule, "2050-03-07T09:00")

    assert "and its run failed: no ink (it began 10 min later)." in answer.text


def test_a_time_whose_event_started_no_run_shows_which_decision_was_taken() -> None:
    schedule = beat(make_schedule(), NINE)
    Decision.objects.create(
        event=Event.objects.get(),
        trigger=Trigger.objects.get(),
        replay_id=NIL,
        outcome="overlap",
        reason="run 7 is live",
    )

    answer = ask(schedule, "2050-03-07T09:00")

    assert answer.verdict == Verdict.NO_RUN
    assert "started no run (overlap: run 7 is live)" in answer.text
    assert answer.decision and answer.decision.outcome == "overlap"


def test_an_undispatched_fire_is_reported_as_waiting_for_dispatch() -> None:
    answer = ask(beat(make_schedule(), NINE), "2050-03-07T09:00")

    assert (answer.verdict, "waits to be dispatched" in answer.text) == (Verdict.FIRED, True)


def test_a_fire_before_the_schedule_was_renamed_is_found() -> None:
    now = database_now()
    nominal = now.replace(second=0, microsecond=0)
    schedule = beat(make_schedule("* * * * *", zone="UTC", since=nominal - MINUTE), nominal)

    edit(schedule, now, name="renamed")

    assert ask(schedule, nominal, now=now).verdict == Verdict.FIRED


def test_a_late_fire_shows_since_when_no_beat_was_alive() -> None:
    now = database_now()
    nominal = (now - 2 * HOUR).replace(minute=0, second=0, microsecond=0)
    schedule = make_schedule("0 * * * *", zone="UTC", since=nominal - MINUTE)
    alive(nominal - DAY, nominal - 10 * MINUTE)
    alive(now - MINUTE, now)

    answer = ask(beat(schedule, nominal + MINUTE), nominal, now=now)

    assert answer.text.startswith("It fired late, at ")
    assert f"No Beat was alive from {say(nominal - 10 * MINUTE)[:-6]} until {say(now - MINUTE)}." in answer.text


def say(at: datetime) -> str:
    clock = f"{at:%H:%M:%S}" if at.second else f"{at:%H:%M}"
    return f"{at:%a %-d %b %Y}, {clock} (UTC)"


def test_a_fire_of_an_ordinary_task_is_reported_as_handed_to_celery() -> None:
    interval = IntervalSchedule.objects.create(every=1, period="hours")
    task = PeriodicTask.objects.create(name="clean", task="shop.clean", interval=interval)
    Schedule.objects.filter(task=task).update(created_at=MONDAY, edited_at=MONDAY)
    schedule = beat(Schedule.objects.get(task=task), MONDAY)

    answer = ask(beat(schedule, MONDAY + HOUR), MONDAY + HOUR)

    assert (answer.verdict, "handed to Celery" in answer.text) == (Verdict.SENT, True)


@pytest.mark.parametrize("again", [False, True])
def test_a_backfilled_time_shows_who_started_the_backfill(again: bool) -> None:
    now = database_now()
    nominal = (now - 3 * HOUR).replace(minute=0, second=0, microsecond=0)
    schedule = make_schedule("0 * * * *", zone="UTC", since=nominal - MINUTE)
    edit(schedule, nominal - MINUTE, catch_up="skip")
    schedule = beat(schedule, now)
    start_backfill(schedule, start=nominal, end=nominal + MINUTE, again=again, by="admin:ada")

    before = ask(schedule, nominal, now=now)
    advance()
    after = ask(schedule, nominal, now=now)

    assert (before.verdict, before.skip and before.skip.reason) == (Verdict.SKIPPED, "missed")
    assert after.verdict == Verdict.FIRED
    assert after.text.startswith("It was backfilled by admin:ada, and fired at ")


# It was skipped


def test_a_missed_time_shows_which_policy_and_when_no_beat_was_alive() -> None:
    schedule = make_schedule("0 * * * *")
    alive(MONDAY - DAY, NINE - 10 * MINUTE)
    alive(NINE + 150 * MINUTE, NINE + DAY)
    beat(schedule, NINE - 20 * MINUTE)

    answer = ask(beat(schedule, NINE + 150 * MINUTE), "2050-03-07T09:00")

    assert answer.verdict == Verdict.SKIPPED
    assert answer.skip and answer.skip.reason == "missed"
    assert "“latest” fires only the newest of the missed times" in answer.text
    assert "No Beat was alive from Mon 7 Mar 2050, 08:50 until Mon 7 Mar 2050, 11:30 (Europe/Vienna)" in answer.text


def test_a_time_outside_active_hours_shows_which_these_are() -> None:
    schedule = make_schedule("0 * * * *")
    edit(schedule, MONDAY, active_hours="10:00-12:00")

    passed = ask(beat(schedule, NINE + 3 * HOUR), "2050-03-07T09:00")
    ahead = ask(schedule, "2050-03-08T09:00")

    assert (passed.verdict, ahead.verdict) == (Verdict.SKIPPED, Verdict.CLOSED)
    assert "That is outside its active hours (10:00-12:00)" in passed.text
    assert "That is outside its active hours (10:00-12:00)" in ahead.text


def test_an_excluded_day_shows_which_holiday_it_is() -> None:
    schedule = make_schedule()
    calendar = ExclusionCalendar.objects.create(slug="at", days="2050-03-08 Foundation Day")
    schedule.exclude.add(calendar)
    dated(schedule, MONDAY + HOUR)

    beat(schedule, NINE + 2 * DAY)

    assert "That day is excluded: at: Foundation Day." in ask(schedule, "2050-03-08T09:00").text


def test_a_time_in_a_pause_shows_who_paused_it_and_when_it_ended() -> None:
    schedule = make_schedule()
    edit(schedule, MONDAY + HOUR, by="admin:ada", enabled=False)

    meanwhile = ask(beat(schedule, NINE), "2050-03-07T09:00")
    edit(schedule, NINE + HOUR, by="admin:bob", enabled=True)
    afterwards = ask(beat(schedule, NINE + 2 * HOUR), "2050-03-07T09:00")

    assert meanwhile.verdict == Verdict.PAUSED
    assert meanwhile.text == "It has been paused by admin:ada since Mon 7 Mar 2050, 02:00 (Europe/Vienna)."
    assert (afterwards.verdict, afterwards.skip and afterwards.skip.reason) == (Verdict.SKIPPED, "paused")
    assert "until Mon 7 Mar 2050, 10:00 (Europe/Vienna), when admin:bob resumed it." in afterwards.text


def test_a_pause_by_sql_names_whom_the_database_saw() -> None:
    schedule = make_schedule()
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE django_celery_beat_periodictask SET enabled = false WHERE id = %s::int", [schedule.task_id]
        )
    dated(schedule, MONDAY + HOUR)

    assert "paused by a session of the database (" in ask(schedule, "2050-03-07T09:00").text


def test_a_time_that_a_heartbeats_agent_skipped_names_the_run() -> None:
    every = IntervalSchedule.objects.create(every=30, period="minutes")
    task = PeriodicTask.objects.create(name="watch", task="t", interval=every, start_time=MONDAY)
    schedule = made(task, MONDAY)
    Schedule.objects.update(kind="heartbeat", pace_min=5 * MINUTE, pace_max=4 * HOUR)
    beat(schedule, NINE)
    request = {"trigger": str(schedule.trigger_id), "run": NIL, "after": 7200.0, "reason": "all quiet"}
    set_pace([request], now=NINE + MINUTE)

    left_out = [ask(schedule, NINE + minutes * MINUTE, now=NINE + HOUR) for minutes in (30, 60, 120)]
    next_one = ask(schedule, NINE + 121 * MINUTE, now=NINE + HOUR)
    between = ask(schedule, NINE + 45 * MINUTE, now=NINE + HOUR)

    assert {(one.verdict, one.skip and one.skip.reason) for one in left_out} == {(Verdict.SKIPPED, "paced")}
    assert left_out[1].text == f"Its agent had set another pace for this heartbeat: run {NIL}: all quiet."
    assert (next_one.verdict, next_one.nominal) == (Verdict.TO_COME, NINE + 121 * MINUTE)
    assert between.verdict == Verdict.NOT_NAMED


def test_a_fire_of_another_scheduler_is_reported() -> None:
    schedule = make_schedule("0 * * * *")
    PeriodicTask.objects.filter(pk=schedule.task_id).update(last_run_at=NINE + 30 * MINUTE)
    beat(schedule, NINE + HOUR)

    answer = ask(schedule, NINE)

    assert (answer.verdict, answer.skip and answer.skip.reason) == (Verdict.SKIPPED, "elsewhere")
    assert "Another scheduler" in answer.text


# What held then


def test_a_time_before_the_schedule_was_made_is_answered_as_not_made() -> None:
    assert ask(make_schedule(), "2050-03-06T09:00").verdict == Verdict.NOT_MADE


def test_a_time_that_the_rule_does_not_name_shows_the_rule_and_the_nearest_times() -> None:
    answer = ask(beat(make_schedule(), NINE + DAY), "2050-03-07T10:00")

    assert answer.verdict == Verdict.NOT_NAMED
    assert "At 09:00 (Europe/Vienna)" in answer.text
    assert answer.nearest == (NINE, NINE + DAY)


def test_a_changed_zone_explains_why_the_old_time_is_not_named_any_more() -> None:
    schedule = beat(make_schedule(), NINE)
    tokyo = CrontabSchedule.objects.create(minute="0", hour="9", timezone="Asia/Tokyo")
    edit(schedule, NINE + HOUR, by="admin:ada", crontab=tokyo)

    answer = ask(beat(schedule, NINE + 3 * DAY), NINE + DAY)

    assert answer.verdict == Verdict.NOT_NAMED
    assert "At 09:00 (Asia/Tokyo)" in answer.text
    until = "Until Mon 7 Mar 2050, 18:00 (Asia/Tokyo) its rule was “At 09:00 (Europe/Vienna)”, changed by admin:ada."
    assert until in answer.text


def test_a_later_rule_explains_the_expectation_too() -> None:
    schedule = make_schedule("0 10 * * *")
    beat(schedule, NINE + 2 * HOUR)
    nine = CrontabSchedule.objects.create(minute="0", hour="9", timezone="Europe/Vienna")
    edit(schedule, NINE + DAY - HOUR, by="cli:deploy", crontab=nine)

    answer = ask(beat(schedule, NINE + DAY), "2050-03-07T09:00")

    assert (
        "Only since Tue 8 Mar 2050, 08:00 (Europe/Vienna) its rule is “At 09:00 (Europe/Vienna)”, changed by cli:deploy."
        in answer.text
    )


def test_each_time_is_read_on_the_clock_of_the_rule_that_held_then() -> None:
    schedule = beat(make_schedule(), NINE)
    tokyo = CrontabSchedule.objects.create(minute="0", hour="9", timezone="Asia/Tokyo")
    edit(schedule, NINE + HOUR, crontab=tokyo)
    beat(schedule, MONDAY + DAY)

    assert ask(schedule, "2050-03-07T09:00").nominal == NINE
    assert ask(schedule, "2050-03-08T09:00").nominal == MONDAY + DAY


def test_times_before_the_start_and_after_the_end_are_answered_as_such() -> None:
    schedule = make_schedule(start_time=NINE + DAY, expires=NINE + 2 * DAY)
    beat(schedule, NINE + 3 * DAY)

    assert ask(schedule, "2050-03-07T09:00").verdict == Verdict.NOT_STARTED
    assert ask(schedule, "2050-03-08T09:00").verdict == Verdict.FIRED
    assert ask(schedule, "2050-03-10T09:00").verdict == Verdict.ENDED


def test_a_time_after_the_last_allowed_fire_is_answered_as_retired() -> None:
    schedule = make_schedule()
    edit(schedule, MONDAY, max_fires=2)
    beat(schedule, NINE)
    beat(schedule, NINE + DAY)

    answer = ask(schedule, "2050-03-09T09:00")

    assert answer.verdict == Verdict.RETIRED
    assert answer.text == "It had fired 2 times, its limit: the last time at Tue 8 Mar 2050, 09:00 (Europe/Vienna)."


@pytest.mark.parametrize("hours", ["", "08:30-16:00"])
def test_the_last_time_of_a_schedule_that_is_to_retire_is_counted_right(hours: str) -> None:
    schedule = make_schedule("*/7 * * * *")
    schedule = edit(schedule, MONDAY, max_fires=2000, active_hours=hours)
    schedule = beat(schedule, NINE + HOUR)
    [*_, held] = history_of(schedule)
    assert held.plan and schedule.accounted_until and schedule.fires
    *_, last, after = islice(held.plan.fires(schedule.accounted_until), 2001 - schedule.fires)

    assert ask(schedule, last, now=NINE + 2 * HOUR).verdict == Verdict.TO_COME
    answer = ask(schedule, after, now=NINE + 2 * HOUR)
    assert answer.verdict == Verdict.RETIRED
    assert answer.text.endswith(f"The last one is {last.astimezone(VIENNA):%a %-d %b %Y, %H:%M} (Europe/Vienna).")


def test_two_thousand_million_times_are_not_listed() -> None:
    interval = IntervalSchedule.objects.create(every=1, period="seconds")
    schedule = made(PeriodicTask.objects.create(name="digest", task="t", interval=interval), MONDAY)
    schedule = edit(schedule, MONDAY, max_fires=2_000_000_000)

    assert ask(schedule, "2113-07-23T03:00").verdict == Verdict.TO_COME
    answer = ask(schedule, "2113-07-24T00:00")

    assert answer.verdict == Verdict.RETIRED
    assert answer.text.endswith("The last one is Sun 23 Jul 2113, 03:33:20 (UTC).")


def test_a_one_shot_fires_once_and_nothing_after() -> None:
    clocked = ClockedSchedule.objects.create(clocked_time=NINE)
    task = PeriodicTask.objects.create(name="digest", task="t", clocked=clocked, one_off=True)
    schedule = beat(made(task, MONDAY), NINE)

    assert ask(schedule, NINE).verdict == Verdict.FIRED
    assert ask(schedule, NINE + DAY).verdict in (Verdict.NOT_NAMED, Verdict.RETIRED)


def test_a_rule_that_cannot_be_carried_out_shows_what_is_wrong_with_it() -> None:
    schedule = make_schedule()
    CrontabSchedule.objects.update(hour="25")
    dated(schedule, MONDAY + HOUR)

    answer = ask(beat(schedule, NINE), NINE)

    assert (answer.verdict, "hour 25 is not between 0 and 23" in answer.text) == (Verdict.BROKEN, True)


# Edits


@pytest.mark.parametrize("change", [{"enabled": False}, {"one_off": True}, {"active_hours": "12:00-13:00"}])
def test_an_edit_while_the_tick_is_in_flight_does_not_take_it_away(change: dict[str, Any]) -> None:
    schedule = make_schedule()
    edit(schedule, NINE + timedelta(milliseconds=4), by="admin:ada", **change)
    beat(schedule, NINE + timedelta(milliseconds=10))

    answer = ask(schedule, "2050-03-07T09:00")

    assert (answer.verdict, answer.nominal) == (Verdict.FIRED, NINE)
    assert ("Rule then", "At 09:00 (Europe/Vienna)") in answer.facts


def test_a_deploy_that_changed_the_rule_is_named() -> None:
    schedule = make_schedule()
    ten = CrontabSchedule.objects.create(minute="0", hour="10", timezone="Europe/Vienna")
    record("cli:deploy", "changed", Trigger.objects.get())
    record("admin:ada", "pause", Trigger.objects.get())
    date_entries(AuditEntry.objects.all(), NINE - HOUR)
    edit(schedule, NINE - HOUR, crontab=ten)

    assert "changed by cli:deploy." in ask(beat(schedule, NINE + HOUR), "2050-03-07T09:00").text


def test_an_edit_just_before_the_tick_is_what_counts() -> None:
    schedule = make_schedule()
    ten = CrontabSchedule.objects.create(minute="0", hour="10", timezone="Europe/Vienna")
    edit(schedule, NINE - timedelta(milliseconds=4), by="admin:ada", crontab=ten)
    beat(schedule, NINE + 2 * HOUR)

    answer = ask(schedule, "2050-03-07T09:00")

    assert answer.verdict == Verdict.NOT_NAMED
    assert "its rule was “At 09:00 (Europe/Vienna)”, changed by admin:ada." in answer.text


# Clock changes: Sunday 27 March and Sunday 30 October 2050


def test_a_time_that_did_not_exist_fired_at_the_end_of_the_gap() -> None:
    schedule = make_schedule("30 2 * * *")
    beat(schedule, datetime(2050, 3, 27, 12, tzinfo=UTC))

    answer = ask(schedule, "2050-03-27T02:30")

    assert answer.verdict == Verdict.FIRED
    assert answer.nominal == datetime(2050, 3, 27, 1, tzinfo=UTC)
    assert answer.text.startswith("02:30 does not exist on 27 March 2050 in Europe/Vienna: the clocks go forward")


def test_a_time_that_came_twice_fired_the_first_time() -> None:
    schedule = make_schedule("30 2 * * *", since=datetime(2050, 10, 29, tzinfo=UTC))
    beat(schedule, datetime(2050, 10, 30, 12, tzinfo=UTC))

    by_the_clock = ask(schedule, "2050-10-30T02:30", now=datetime(2050, 11, 1, tzinfo=UTC))
    second_time = ask(schedule, "2050-10-30T02:30+01:00", now=datetime(2050, 11, 1, tzinfo=UTC))

    assert by_the_clock.nominal == datetime(2050, 10, 30, 0, 30, tzinfo=UTC)
    assert by_the_clock.text.startswith("02:30 comes twice on 30 October 2050")
    assert second_time.verdict == Verdict.TWICE
    assert second_time.event_id == by_the_clock.event_id


def test_a_wildcard_hour_fired_in_both_passes_and_in_no_gap() -> None:
    schedule = make_schedule("30 * * * *", since=datetime(2050, 3, 27, tzinfo=UTC))
    edit(schedule, datetime(2050, 3, 27, tzinfo=UTC), catch_up="all")
    beat(schedule, datetime(2050, 10, 30, 12, tzinfo=UTC))
    now = datetime(2050, 11, 1, tzinfo=UTC)

    gap = ask(schedule, "2050-03-27T02:30", now=datetime(2050, 3, 28, tzinfo=UTC))
    first = ask(schedule, "2050-10-30T02:30", now=now)
    second = ask(schedule, "2050-10-30T02:30+01:00", now=now)

    assert gap.verdict == Verdict.NOT_NAMED
    assert gap.text.startswith(
        "02:30 does not exist on 27 March 2050 in Europe/Vienna: the clocks go forward to 03:00,"
        " and its rule follows elapsed time: nothing fires in between."
    )
    assert first.text.startswith(
        "02:30 comes twice on 30 October 2050 in Europe/Vienna, and its rule follows elapsed time:"
        " this is the first (00:30 UTC), the second is 2050-10-30T02:30+01:00."
    )
    assert [first.nominal, second.nominal] == [datetime(2050, 10, 30, hour, 30, tzinfo=UTC) for hour in (0, 1)]
    assert (first.verdict, second.verdict) == (Verdict.FIRED, Verdict.FIRED)
    assert first.event_id != second.event_id


# Not yet


def test_a_time_to_come_shows_when_it_fires() -> None:
    schedule = make_schedule()
    edit(schedule, MONDAY, jitter=10 * MINUTE)
    beat(schedule, MONDAY + MINUTE)

    answer = ask(schedule, "2050-03-07T09:00", now=MONDAY + HOUR)

    assert answer.verdict == Verdict.TO_COME
    assert "jitter and spread move it by" in answer.text


def test_a_paused_trigger_is_mentioned_before_it_holds_the_event() -> None:
    schedule = make_schedule(trigger=make_trigger("digest", types=[], paused_at=MONDAY, paused_reason="broken"))

    assert "its event will be held" in ask(schedule, NINE, now=MONDAY + HOUR).text


def test_a_due_time_that_has_not_fired_shows_that_no_beat_is_alive() -> None:
    schedule = make_schedule()
    alive(MONDAY - DAY, NINE - HOUR)

    answer = ask(schedule, NINE, now=NINE + 10 * MINUTE)

    assert answer.verdict == Verdict.LATE
    assert "no Beat has been alive since Mon 7 Mar 2050, 08:00 (Europe/Vienna)" in answer.text


def test_a_due_time_that_a_live_beat_has_not_fired_points_to_its_log() -> None:
    schedule = make_schedule()
    alive(MONDAY - DAY, NINE + HOUR)

    assert "although a Beat is alive" in ask(schedule, NINE, now=NINE + 10 * MINUTE).text


def test_an_edit_that_is_not_worked_in_yet_is_reported() -> None:
    schedule = make_schedule()
    alive(MONDAY - DAY, NINE + HOUR)
    edit(schedule, NINE - MINUTE, expires=NINE + DAY)

    assert "Beat is working in its edit of Mon 7 Mar 2050, 08:59" in ask(schedule, NINE, now=NINE + MINUTE).text


def test_a_time_older_than_retention_is_answered_as_forgotten() -> None:
    schedule = beat(make_schedule(), NINE)
    Event.objects.all().delete()

    assert ask(schedule, NINE, now=NINE + 200 * DAY).verdict == Verdict.FORGOTTEN


# Every instant has an answer


def pause(random: Random) -> dict[str, Any]:
    return {"enabled": False}


def resume(random: Random) -> dict[str, Any]:
    return {"enabled": True}


def new_rule(random: Random) -> dict[str, Any]:
    nothing: dict[str, Any] = {"interval": None, "crontab": None, "clocked": None, "one_off": False}
    match random.choice(["interval", "crontab", "crontab", "clocked"]):
        case "interval":
            every, _ = IntervalSchedule.objects.get_or_create(every=random.choice([7, 20, 45, 90]), period="minutes")
            return {**nothing, "interval": every}
        case "clocked":
            at = BEGIN + random.randint(0, 36 * 60) * MINUTE
            clocked, _ = ClockedSchedule.objects.get_or_create(clocked_time=at)
            return {**nothing, "clocked": clocked, "one_off": True}
    zone = random.choice(["UTC", "Europe/Vienna", "Australia/Lord_Howe", "Asia/Kathmandu"])
    hour, minute = random.choice(["*", "*/2", "2", "1,2,3", "9-17", "25"]), random.choice(["0", "30", "*/20"])
    return {**nothing, "crontab": CrontabSchedule.objects.create(minute=minute, hour=hour, timezone=zone)}


def new_policy(random: Random) -> dict[str, Any]:
    return {
        "catch_up": random.choice(["latest", "skip", "all"]),
        "catch_up_max": random.choice([None, 2]),
        "catch_up_window": random.choice([None, 3 * HOUR]),
        "jitter": random.choice([timedelta(), 5 * MINUTE]),
        "spread": random.choice([timedelta(), 90 * MINUTE]),
        "active_hours": random.choice(["", "08:00-16:00"]),
    }


def new_limits(random: Random) -> dict[str, Any]:
    at = BEGIN + random.randint(0, 36) * HOUR
    return random.choice(
        [{"one_off": True}, {"one_off": False}, {"max_fires": 3}, {"max_fires": None}, {"start_time": at}, {"expires": at},
         {"start_time": None, "expires": None}]
    )  # fmt: skip


BEGIN = datetime(2050, 3, 26, 12, tzinfo=UTC)  # the clocks of Vienna change within
EDITS: list[Callable[[Random], dict[str, Any]]] = [pause, resume, resume, new_rule, new_rule, new_policy, new_limits]
WHERE_NOTHING_IS_NAMED = {
    Verdict.NOT_NAMED, Verdict.NOT_MADE, Verdict.NOT_STARTED, Verdict.ENDED, Verdict.BROKEN, Verdict.TWICE, Verdict.PAUSED,
    Verdict.RETIRED,
}  # fmt: skip


@pytest.mark.parametrize("seed", range(200 if "WAKEFUL_FULL" in os.environ else 2))
def test_every_instant_of_a_random_history_is_explained(seed: int) -> None:
    random = Random(seed)
    schedule = make_schedule("0 * * * *", since=BEGIN)
    now = live_through(random, schedule)

    schedule = fresh(schedule)
    named = [nominal for held in history_of(schedule) for nominal in owned(held, until=now)]
    for nominal in random.sample(named, min(len(named), 40)):
        require_the_truth(schedule, nominal, now)
    for _ in range(20):
        instant = BEGIN - HOUR + random.randint(0, 38 * 3600) * timedelta(seconds=1)
        if instant not in named:
            answer = why(schedule, instant, timedelta(microseconds=1), now=now)
            assert answer.verdict in WHERE_NOTHING_IS_NAMED, answer


def live_through(random: Random, schedule: Schedule) -> datetime:
    """A day and a half of edits, and of a Beat that is away now and then; when that has ended."""
    now = BEGIN
    calendar = ExclusionCalendar.objects.create(slug="at", days="2050-03-27 Clock Day")
    while now < BEGIN + 36 * HOUR:
        now += random.choice([MINUTE, 10 * MINUTE, HOUR, 5 * HOUR])
        if random.random() < 0.4:
            edit(schedule, now, **random.choice(EDITS)(random))
        if random.random() < 0.05:
            schedule.exclude.set(random.choice([[], [calendar]]))
            dated(schedule, now)
        if random.random() < 0.7:
            beat(schedule, now)
    return now


def owned(held: Held, until: datetime) -> Iterator[datetime]:
    """The nominal times that a definition has to account for."""
    at, end = held.since, min(held.until or until, until)
    while (nominal := held.owns(at, end)) is not None:
        yield nominal
        at = nominal + timedelta(microseconds=1)


def require_the_truth(schedule: Schedule, nominal: datetime, now: datetime) -> None:
    """The answer about a nominal time agrees with its event, its skip, or the state of its schedule."""
    answer = why(schedule, nominal, timedelta(microseconds=1), now=now)
    fired = Event.objects.filter(time=nominal).exists()
    skip = Skip.objects.filter(schedule=schedule, first__lte=nominal, last__gte=nominal).first()
    if fired:
        assert (answer.verdict, answer.nominal) == (Verdict.FIRED, nominal), answer
    elif skip:
        assert (answer.verdict, answer.skip) == (Verdict.SKIPPED, skip), answer
    elif answer.verdict in (Verdict.TO_COME, Verdict.LATE):
        assert schedule.accounted_until is None or nominal > schedule.accounted_until, answer
    else:
        assert answer.verdict in (Verdict.PAUSED, Verdict.RETIRED, Verdict.CLOSED, Verdict.BROKEN), answer
