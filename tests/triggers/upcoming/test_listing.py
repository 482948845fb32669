"""What will wake next: every kind in one list, soonest first, at a price that does not grow with what there is."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from django_celery_beat.models import ClockedSchedule, CrontabSchedule, IntervalSchedule, PeriodicTask

from runs.db.sql import execute, fetch
from runs.models import NIL, OutboxMessage
from tests.support.journals import make_wait
from tests.support.runs import make_run
from tests.support.triggers import make_heartbeat, make_trigger
from triggers.models import Schedule, Source, Trigger, Window
from triggers.schedules.firing import due_schedules
from triggers.schedules.heartbeats import set_pace
from triggers.upcoming import listing
from triggers.upcoming.entry import Coming
from triggers.upcoming.listing import ahead

pytestmark = pytest.mark.django_db

# Years ahead of the database's clock: what is tested never depends on the day it is tested.
NINE = datetime(2050, 3, 7, 9, 0, tzinfo=UTC)  # a Monday
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


def armed(name: str, rule: Any, *, since: datetime = NINE, trigger: Trigger | None = None, **columns: Any) -> Schedule:
    """A schedule that Beat has seen, edited last at an instant; a rule is minutes, a crontab's hour or an instant."""
    if isinstance(rule, int):
        rows: dict[str, Any] = {"interval": IntervalSchedule.objects.create(every=rule, period="minutes")}
    elif isinstance(rule, str):
        rows = {"crontab": CrontabSchedule.objects.create(minute="0", hour=rule)}
    else:
        rows = {"clocked": ClockedSchedule.objects.create(clocked_time=rule), "one_off": True}
    task = PeriodicTask.objects.create(name=name, task="any", **rows)
    Schedule.objects.filter(task=task).update(trigger=trigger, **columns)
    Schedule.objects.filter(task=task).update(edited_at=since)  # by itself: the table dates other edits
    due_schedules.settle()
    return Schedule.objects.get(task=task)


def waking(name: str, rule: Any, **columns: Any) -> Schedule:
    return armed(name, rule, trigger=make_trigger(name, types=[]), **columns)


def put_wake(trigger: Trigger, at: datetime, reason: str = "") -> OutboxMessage:
    payload = {"trigger": str(trigger.pk), "run": str(uuid4()), "name": "1", "data": {"n": 1}, "reason": reason}
    return OutboxMessage.objects.create(topic="wakeup", key=str(trigger.pk), payload=payload, available_at=at)


def put_window(trigger: Trigger, at: datetime, **fields: Any) -> Window:
    values = {"key": str(trigger.pk), "replay_id": NIL, "event_ids": [uuid4(), uuid4()], "root_id": uuid4(), "depth": 0}
    return Window.objects.create(trigger=trigger, due_at=at, **{**values, **fields})


def put_meeting(source: Source, at: datetime, title: str, *, before: timedelta = timedelta()) -> OutboxMessage:
    payload = {"source": str(source.pk), "starts_at": (at + before).isoformat(), "data": {"title": title}}
    return OutboxMessage.objects.create(topic="calendar", key=str(source.pk), payload=payload, available_at=at)


def make_calendar(slug: str = "meetings", **fields: Any) -> Source:
    return Source.objects.create(slug=slug, kind="ics", settings={"url": "https://example.com/a.ics"}, **fields)


def day(**options: Any) -> list[Coming]:
    return ahead(NINE, NINE + DAY, 100, **options)


def names(found: list[Coming]) -> list[str]:
    return [one.name for one in found]


def one_of_each() -> Trigger:
    trigger = make_trigger("digest", agent="reporter", types=[])
    put_window(trigger, NINE + 6 * MINUTE)
    waking("nightly", "3", data=None)
    armed("reminder", NINE + 5 * MINUTE, trigger=make_trigger("reminders"), kind="reminder", data={"text": "Call Ada"})
    armed("cleanup", "4")
    put_wake(trigger, NINE + MINUTE, "quarterly review")
    make_wait(make_run(status="waiting", trigger="order", agent="seller"), key="sleep#1", due_at=NINE + 2 * MINUTE)
    put_meeting(make_calendar(), NINE + 7 * MINUTE, "Review", before=15 * MINUTE)
    late: dict[str, Any] = {"status": "queued", "ready_at": None, "trigger": "mailer"}
    make_run(**late, due_at=NINE + 3 * MINUTE, attempt=2, error="OSError: no route\nmore")
    make_run(**late, due_at=NINE + 4 * MINUTE)
    return trigger


# One list


def test_everything_that_is_to_come_is_in_one_list_soonest_first() -> None:
    one_of_each()

    assert [(one.kind, one.name, one.agent, one.why) for one in day()] == [
        ("wake", "digest", "reporter", "quarterly review"),
        ("timer", "sleep#1", "seller", "its sleep ends"),
        ("retry", "mailer", "mailer", "attempt 2 failed: OSError: no route"),
        ("start", "mailer", "mailer", "the rate of its trigger lets it start at this time"),
        ("reminder", "reminder", "reminders", "Call Ada"),
        ("window", "digest", "reporter", "2 events wait to become one run"),
        ("meeting", "Review", "", "meetings: starts 15 min later"),
        ("schedule", "nightly", "nightly", "At 03:00 (UTC)"),
        ("task", "cleanup", "", "At 04:00 (UTC)"),
    ]


def test_each_entry_has_the_ids_of_its_objects() -> None:
    trigger = make_trigger("digest", types=[])
    schedule = armed("digest", 30, trigger=trigger)
    wake = put_wake(trigger, NINE + MINUTE)
    wait = make_wait(make_run(status="waiting"), due_at=NINE + 2 * MINUTE)

    by_kind = {one.kind: one for one in day()}

    assert (by_kind["schedule"].schedule_id, by_kind["schedule"].trigger_id) == (schedule.pk, trigger.pk)
    assert (str(by_kind["wake"].run_id), by_kind["wake"].trigger_id) == (wake.payload["run"], trigger.pk)
    assert by_kind["timer"].run_id == wait.run_id


def test_no_more_than_the_limit_are_read_and_later_ones_are_left_out() -> None:
    for minutes in (10, 20, 30):
        waking(f"every {minutes}", minutes)
    waking("next week", NINE + 7 * DAY)

    assert names(day()) == ["every 10", "every 20", "every 30"]
    assert names(ahead(NINE, NINE + DAY, 2)) == ["every 10", "every 20"]
    assert names(ahead(NINE, NINE + 15 * MINUTE, 100)) == ["every 10"]


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"kinds": ["wake", "timer"]}, ["wake", "timer"]),
        ({"kinds": ["reminder", "start"]}, ["start", "reminder"]),
        ({"kinds": ["task"]}, ["task"]),
        ({"agent": "reporter"}, ["wake", "window"]),
        ({"agent": "seller"}, ["timer"]),
        ({"agent": "nightly", "kinds": ["schedule", "task"]}, ["schedule"]),
    ],
)
def test_the_listing_is_filtered_by_kind_and_by_agent(options: dict[str, Any], found: list[str]) -> None:
    one_of_each()

    assert [one.kind for one in day(**options)] == found


# Meetings


def test_a_meeting_is_listed_for_the_agents_whose_triggers_listen_to_its_source() -> None:
    make_trigger("brief", source="meetings", types=["calendar.st*"])
    make_trigger("log", types=["*"])
    make_trigger("changes", source="meetings", types=["calendar.changed"])
    make_trigger("elsewhere", source="others", types=["calendar.starts"])
    put_meeting(make_calendar(), NINE + MINUTE, "Review")

    assert [one.why for one in day()] == ["meetings: starts at this time"]
    found = {agent: names(day(agent=agent)) for agent in ("brief", "log", "changes", "elsewhere", "none")}
    assert found == {"brief": ["Review"], "log": ["Review"], "changes": [], "elsewhere": [], "none": []}


def test_a_meeting_of_a_disabled_source_wakes_nothing_and_one_without_a_title_is_listed() -> None:
    put_meeting(make_calendar(enabled=False), NINE + MINUTE, "")

    [one] = day()
    assert (one.name, one.why) == ("(no title)", "meetings: its source is disabled or deleted, so nothing wakes")


# Schedules


def test_a_schedule_is_listed_once_with_its_further_times() -> None:
    waking("often", 30)
    waking("daily", "12")

    often, daily = day()

    assert (often.at, len(often.later), often.later[-1], often.is_endless) == (
        NINE + HOUR / 2,
        46,
        NINE + DAY - HOUR / 2,
        False,
    )
    assert (daily.at, daily.later) == (NINE + 3 * HOUR, ())


def test_a_schedule_that_fires_all_the_time_does_not_fill_the_list() -> None:
    waking("all the time", 1)
    waking("daily", "12")

    often, daily = day()

    assert (len(often.later), often.is_endless) == (listing.REPEATS, True)
    assert daily.name == "daily"


def test_a_future_day_shows_its_fires() -> None:
    waking("often", 30)
    waking("next week", NINE + 7 * DAY + HOUR)
    waking("tomorrow", NINE + DAY)

    found = ahead(NINE + 7 * DAY, NINE + 8 * DAY, 100)

    assert [(one.name, one.at, len(one.later)) for one in found] == [
        ("often", NINE + 7 * DAY, 47),
        ("next week", NINE + 7 * DAY + HOUR, 0),
    ]


def test_only_times_at_which_it_really_fires_are_listed() -> None:
    waking("in the morning", 60, active_hours="10:00-12:00")
    waking("twice", 60, max_fires=2)
    waking("moved", 60, spread=30 * MINUTE)

    found = {one.name: one for one in day()}

    assert [found["in the morning"].at, *found["in the morning"].later] == [NINE + HOUR, NINE + 2 * HOUR]
    assert [found["twice"].at, *found["twice"].later] == [NINE + HOUR, NINE + 2 * HOUR]
    assert found["moved"].nominal == NINE + HOUR
    assert NINE + HOUR < found["moved"].at < NINE + 90 * MINUTE
    assert ahead(NINE + DAY, NINE + 2 * DAY, 100, agent="twice") == []


def test_late_entries_are_listed_from_now_on_and_not_on_a_future_day() -> None:
    now = timezone.now()
    late = waking("late", 60, since=now - 3 * HOUR)
    Schedule.objects.filter(pk=late.pk).update(next_fire_at=now - HOUR, due_at=now - HOUR)
    put_wake(make_trigger("waiting"), now - MINUTE)

    assert [(one.name, one.at < now) for one in ahead(now, now + DAY, 10)] == [("late", True), ("waiting", True)]
    assert names(ahead(now + DAY, now + 2 * DAY, 10)) == ["late"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"paused_at": NINE}, "its trigger is paused, so the event is held"),
        ({"enabled": False}, "its trigger is off, so nothing wakes"),
    ],
)
def test_an_entry_that_will_wake_no_agent_gives_the_reason(changes: dict[str, Any], message: str) -> None:
    waking("nightly", "12")
    Trigger.objects.update(**changes)

    assert message in day()[0].why


def test_schedules_that_do_not_fire_are_not_listed() -> None:
    paused = waking("paused", 30)
    PeriodicTask.objects.filter(pk=paused.task_id).update(enabled=False)
    due_schedules.settle()

    assert day() == []


def test_a_heartbeat_shows_the_pace_that_its_agent_requested() -> None:
    heartbeat = make_heartbeat()
    Schedule.objects.filter(pk=heartbeat.pk).update(edited_at=NINE)
    due_schedules.settle()
    assert day()[0].why == "every 30 minutes"

    run = uuid4()
    request = {"trigger": str(heartbeat.trigger_id), "run": str(run), "after": 9 * 3600.0, "reason": "quiet night"}
    set_pace([request], now=NINE + MINUTE)

    [found] = day()
    assert found.at == NINE + 4 * HOUR + MINUTE
    assert found.why == "every 30 minutes; its agent requested 9 h, and was given 4 h: quiet night"
    assert (found.kind, found.run_id) == ("heartbeat", run)


# Its price


def test_the_listing_has_the_same_number_of_queries_for_any_number_of_wakes() -> None:
    one_of_each()
    queries = price()
    for number in range(20):
        waking(f"another {number}", 30)
        put_wake(make_trigger(f"waker {number}"), NINE + MINUTE)
        put_window(make_trigger(f"window {number}"), NINE + MINUTE)

    assert price() == queries


def price() -> int:
    with CaptureQueriesContext(connection) as captured:
        day()
    return len(captured)


def test_only_the_shown_schedules_are_read_of_many_that_fire_at_one_time() -> None:
    daily = CrontabSchedule.objects.create()
    PeriodicTask.objects.bulk_create(PeriodicTask(name=f"many {n}", task="any", crontab=daily) for n in range(2000))
    Schedule.objects.update(stale=False, next_fire_at=NINE + HOUR, due_at=NINE + HOUR)
    execute("ANALYZE triggers_schedule")

    with CaptureQueriesContext(connection) as captured:
        found = ahead(NINE, NINE + DAY, 10)

    reads = [query["sql"] for query in captured if query["sql"].startswith('SELECT "triggers_schedule"."id" AS "pk"')]
    plans = ["\n".join(line for (line,) in fetch(f"EXPLAIN {read}")) for read in reads]
    assert len(found) == 10
    assert len(plans) == 2
    assert all("Scan using schedule_due" in plan and "Sort" not in plan for plan in plans), plans
