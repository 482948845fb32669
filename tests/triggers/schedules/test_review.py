"""What must not happen to schedules, however unlikely."""

from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.db import connection
from django.urls import reverse
from django_celery_beat.models import PeriodicTask

from config.console.schedules.page import changes
from config.console.schedules.recent_fires import fires_of
from runs.db.sql import database_now
from tests.support.triggers import make_trigger
from tests.triggers.schedules.test_plan import count_calls
from tests.triggers.test_beat import HOUR, MINUTE, NINE, date_edit, every, fire_all, make_schedule, nominals
from triggers import beat
from triggers.exceptions import RuleError
from triggers.models import BackfillTick, Event, ExclusionCalendar, Revision, Schedule, Skip
from triggers.schedules.backfill.advance import advance, progress
from triggers.schedules.backfill.start import start_backfill
from triggers.schedules.definition import Definition
from triggers.schedules.explain.why import why
from triggers.schedules.firing import catch_up, owed_fires
from triggers.schedules.firing import due_schedules as due
from triggers.schedules.plan import Plan
from triggers.schedules.preview import upcoming
from triggers.schedules.rows import set_rule
from triggers.schedules.rules.crontab import Cron
from triggers.schedules.rules.interval import Interval
from triggers.schedules.rules.once import Clocked
from triggers.schedules.terms.policy import SchedulePolicy
from triggers.upcoming.entry import Span
from triggers.upcoming.listing import Clock, ahead

DAY = timedelta(days=1)
VIENNA, HAVANA, HOWE = ZoneInfo("Europe/Vienna"), ZoneInfo("America/Havana"), ZoneInfo("Australia/Lord_Howe")


def test_jitter_longer_than_an_outage_costs_no_more_than_a_short_one(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan(rule=Interval(every=MINUTE, anchor=NINE), jitter=300 * DAY, seed="1")
    now = NINE + 300 * DAY
    looked_at = count_calls(monkeypatch, Plan, "due")

    fires = catch_up._on_time(plan, NINE + MINUTE, now, now)

    assert fires and fires[-1] == now and len(fires) <= 3
    assert looked_at() < 10


def test_a_month_to_come_of_a_schedule_with_a_long_jitter_is_not_walked_through(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = Plan(rule=Interval(every=MINUTE, anchor=NINE), jitter=36_500 * DAY, seed="1")
    schedule = Schedule(pk=1, task=PeriodicTask(), next_fire_at=NINE, due_at=plan.due(NINE))
    start = NINE + 300 * DAY
    looked_at = count_calls(monkeypatch, Plan, "due")

    found = Clock(schedule, plan).within(Span(start=start, until=start + HOUR, now=NINE), 100)

    assert len(found) == 60 and all(start <= due < start + HOUR for _, due in found)
    assert looked_at() < 200


def test_declared_data_equals_its_row() -> None:
    assert SchedulePolicy.parse({"data": {"shops": (1, 2), 3: None}}).data == {"shops": [1, 2], "3": None}


@pytest.mark.django_db
def test_schedules_beyond_the_time_of_a_batch_are_left_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owed_fires, "WORK", 0)
    for number in range(3):
        make_schedule(every(HOUR), trigger=make_trigger(f"t{number}", types=[]), name=f"t{number}")

    due.fire_due(NINE + HOUR)
    assert Event.objects.count() == 1
    assert fire_all(NINE + HOUR) == [NINE + HOUR] * 3

    Schedule.objects.update(jitter=MINUTE)
    while due.find_due().has_stale:
        due.settle(NINE + HOUR)
    assert Schedule.objects.filter(jitter=MINUTE, next_fire_at=NINE + 2 * HOUR).count() == 3


@pytest.mark.django_db
def test_many_edits_while_no_beat_ran_are_worked_off_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owed_fires, "WORK", 0)
    schedule = make_schedule(every(HOUR), catch_up="all")
    edit_at(schedule, NINE + HOUR + MINUTE, jitter=MINUTE)
    edit_at(schedule, NINE + 2 * HOUR + MINUTE, jitter=2 * MINUTE)
    edit_at(schedule, NINE + 3 * HOUR + MINUTE, jitter=3 * MINUTE)

    due.settle(NINE + 4 * HOUR)
    assert nominals() == [NINE + HOUR]
    while due.find_due().has_stale:
        due.settle(NINE + 4 * HOUR)

    assert nominals() == [NINE + HOUR, NINE + 2 * HOUR, NINE + 3 * HOUR]
    assert not Skip.objects.exists()


@pytest.mark.django_db
def test_one_shot_that_was_edited_twice_while_no_beat_ran_fires_once() -> None:
    schedule = make_schedule(Cron.parse("0 10 * * *"), one_off=True)
    edit_at(schedule, NINE + DAY, jitter=MINUTE)
    edit_at(schedule, NINE + 2 * DAY, jitter=2 * MINUTE)

    due.settle(NINE + 3 * DAY)
    fire_all(NINE + 5 * DAY)

    assert nominals() == [NINE + HOUR]
    schedule.refresh_from_db()
    assert schedule.status == "done" and not Skip.objects.exists()


@pytest.mark.django_db
def test_beat_looks_again_soon_at_a_locked_stale_schedule() -> None:
    make_schedule(every(HOUR))
    Schedule.objects.update(jitter=MINUTE)

    assert beat.time_until_next(due.find_due(), timedelta(seconds=10)) <= timedelta(milliseconds=100)


@pytest.mark.django_db
def test_a_fire_under_an_earlier_name_is_not_backfilled_again() -> None:
    today = database_now().replace(hour=0, minute=0, second=0, microsecond=0)
    schedule = make_schedule(Cron.parse("0 9 * * *"), seen_at=today - 3 * DAY)
    fire_all(today - 3 * DAY + 9 * HOUR)

    PeriodicTask.objects.filter(pk=schedule.task_id).update(name="renamed")
    assert not Schedule.objects.get().stale
    schedule = Schedule.objects.select_related("task", "trigger").get()
    backfill = start_backfill(schedule, start=today - 3 * DAY, end=today - DAY, by="ann")
    advance()

    assert len(nominals()) == 2 == Event.objects.count()
    assert [fire.nominal for fire in fires_of(schedule)] == sorted(nominals(), reverse=True)
    assert list(BackfillTick.objects.order_by("nominal").values_list("backfill", "outcome")) == [
        (backfill.pk, "there"),
        (backfill.pk, "open"),
    ]


@pytest.mark.django_db
def test_calendar_that_sql_deletes_before_its_links_is_an_edit_of_its_schedules() -> None:
    calendar = ExclusionCalendar.objects.create(slug="at", days="2050-03-08 Holiday")
    schedule = make_schedule(Cron.parse("0 9 * * *"))
    schedule.exclude.add(calendar)
    while due.find_due().has_stale:
        due.settle(NINE)

    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM triggers_exclusioncalendar")
        cursor.execute("DELETE FROM triggers_schedule_exclude")

    assert Schedule.objects.get().stale
    assert Revision.objects.latest("id").state["exclude"] == {"at": "2050-03-08 Holiday"}


@pytest.mark.django_db
@pytest.mark.parametrize(
    "broken",
    [
        "UPDATE django_celery_beat_intervalschedule SET period = 'fortnights'",
        "UPDATE django_celery_beat_intervalschedule SET every = 2000000000, period = 'days'",
        "UPDATE django_celery_beat_periodictask SET start_time = '9999-12-31 23:59:59+00'",
        "UPDATE triggers_schedule SET jitter = make_interval(years => 9999)",
        "UPDATE triggers_schedule SET active_hours = 'now and then'",
        "UPDATE triggers_schedule SET active_zone = 'Mars/Olympus'",
        "UPDATE triggers_schedule SET catch_up_window = make_interval(years => 9999)",
    ],
)
def test_rows_that_make_no_sense_stop_neither_others_nor_backfills_nor_pages(broken: str, admin_client: Any) -> None:
    schedule = make_schedule(every(HOUR))
    other = make_schedule(Cron.parse("0 * * * *"), trigger=make_trigger("other", types=[]), name="other")
    now = database_now()
    backfill = start_backfill(schedule, start=now - DAY, end=now, by="ann")
    with connection.cursor() as cursor:
        cursor.execute(broken)
    Schedule.objects.filter(pk=other.pk).update(
        jitter=timedelta(), active_hours="", active_zone="", catch_up_window=None
    )
    PeriodicTask.objects.filter(pk=other.task_id).update(start_time=None)

    while due.find_due().has_stale:
        due.settle(NINE)
    fire_all(NINE + HOUR)
    advance()

    assert Event.objects.filter(ce_source="other").count() == 1
    progress(backfill)
    why(Schedule.objects.select_related("task", "trigger").get(pk=schedule.pk), NINE + HOUR, now=NINE + HOUR)
    assert ahead(now, NINE + DAY, 10)
    assert admin_client.get("/admin/triggers/schedule/").status_code == 200
    for name in ("change", "edit", "why", "backfill"):
        assert admin_client.get(page_of(schedule, name)).status_code == 200, name


@pytest.mark.django_db
def test_a_one_shot_paused_before_it_fires_is_paused_after_fires_of_another_rule() -> None:
    schedule = make_schedule(every(HOUR))
    fire_all(NINE + HOUR)
    set_rule(schedule, Clocked(at=NINE + DAY))
    while due.find_due().has_stale:
        due.settle(NINE + HOUR)

    PeriodicTask.objects.filter(pk=schedule.task_id).update(enabled=False)
    while due.find_due().has_stale:
        due.settle(NINE + HOUR)

    assert Schedule.objects.get().status == "paused"


@pytest.mark.django_db
def test_a_finished_schedule_stays_done_when_its_jitter_is_edited() -> None:
    make_schedule(Clocked(at=NINE + HOUR))
    fire_all(NINE + HOUR)
    assert Schedule.objects.get().status == "done"

    Schedule.objects.update(jitter=MINUTE)
    due.settle(NINE + 2 * HOUR)

    assert Schedule.objects.get().status == "done"


@pytest.mark.django_db
def test_a_repaired_schedule_shows_its_next_fires_at_once() -> None:
    schedule = make_schedule(every(HOUR))
    Schedule.objects.update(active_hours="now and then")
    due.settle(NINE)
    assert Schedule.objects.get().problem

    Schedule.objects.update(active_hours="")

    assert len(upcoming(Schedule.objects.select_related("task__interval").get(pk=schedule.pk))) == 10


@pytest.mark.django_db
def test_the_zone_of_an_editors_session_does_not_change_an_instant() -> None:
    schedule = make_schedule(every(HOUR))
    PeriodicTask.objects.update(start_time=NINE)
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL timezone = 'Asia/Kathmandu'; SET LOCAL datestyle = 'SQL, DMY'")
        cursor.execute("UPDATE triggers_schedule SET jitter = '1 minute'")
        cursor.execute("SET LOCAL timezone = 'UTC'; SET LOCAL datestyle = 'ISO'")

    revision = Revision.objects.filter(schedule=schedule).latest("id")
    before, now = Definition.of(revision), Definition.of(Schedule.objects.get())
    assert before.start == now.start == NINE and before.spec == now.spec
    assert changes(before, now) == ["jitter (s): none → 60"]


@pytest.mark.parametrize("instant", ["0001-01-01T00:00+14:00", "9999-12-31T23:59-12:00", "9999-12-31T23:59"])
def test_instants_beyond_the_calendar_are_refused_in_words(instant: str) -> None:
    with pytest.raises(RuleError):
        Clocked.parse(instant)


def page_of(schedule: Schedule, name: str) -> str:
    return reverse(f"admin:triggers_schedule_{name}", args=[schedule.pk])


def edit_at(schedule: Schedule, at: datetime, **columns: object) -> None:
    Schedule.objects.filter(pk=schedule.pk).update(**columns)
    date_edit(schedule, at)


@pytest.mark.django_db
@pytest.mark.parametrize("at", ["0001-01-01T00:00:00", "9999-12-31T23:59:59"])
@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Niue"])
def test_pages_answer_for_times_at_the_ends_of_the_calendar(at: str, zone: str, admin_client: Any) -> None:
    schedule = make_schedule(Cron.parse("0 * * * *", zone))

    answers = [
        admin_client.get(page_of(schedule, "why"), {"at": at}),
        admin_client.get("/admin/triggers/schedule/why/", {"q": "digest", "at": at}),
        admin_client.post(
            page_of(schedule, "edit"), {"when": "every 30m", "tz": zone, "kind": "schedule", "start": at}
        ),
        admin_client.post("/admin/triggers/schedule/preview/", {"when": f"at {at}", "tz": zone, "start": at}),
        admin_client.post(page_of(schedule, "backfill"), {"start": at, "end": at, "at_once": 1, "priority": 9}),
        admin_client.post(page_of(schedule, "backfill_preview"), {"start": at, "end": at}),
        admin_client.get("/admin/coming/", {"day": at[:10], "month": at[:10], "view": "list"}),
        admin_client.get("/admin/coming/", {"day": at[:10], "month": at[:7], "view": "month"}),
    ]

    assert [answer.status_code for answer in answers] == [200] * len(answers)


@pytest.mark.django_db
def test_deeply_nested_json_stops_no_other_schedule() -> None:
    make_schedule(every(HOUR))
    other = make_schedule(every(HOUR), trigger=make_trigger("other", types=[]), name="other")
    task = PeriodicTask.objects.create(name="ordinary", task="t", crontab=None, interval=other.task.interval)
    PeriodicTask.objects.filter(pk=task.pk).update(args="[" * 100_000)
    date_edit(Schedule.objects.get(task=task), NINE)
    due.settle(NINE)
    with connection.cursor() as cursor:
        deep = "[" * 1500 + "]" * 1500
        cursor.execute("UPDATE triggers_schedule SET data = %s::jsonb WHERE id <> %s", [deep, other.pk])

    fire_all(NINE + HOUR)

    assert [event.ce_source for event in Event.objects.all()] == ["other"]
    assert not due.fire_due(NINE + HOUR)
