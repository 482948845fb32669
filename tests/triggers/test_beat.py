"""Due schedules become events, on a real PostgreSQL with a clock the tests choose. Concurrency: tests/integration."""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from celery import Celery
from celery.schedules import crontab
from django.db import connection
from django_celery_beat.models import CrontabSchedule, IntervalSchedule, PeriodicTask

from runs.models import OutboxMessage
from tests.support.triggers import make_trigger
from triggers.beat import Scheduler
from triggers.models import Event, Revision, Schedule, Skip, Source, Trigger
from triggers.schedules import rows
from triggers.schedules.firing import catch_up as decide
from triggers.schedules.firing import due_schedules, settle
from triggers.schedules.periodic_tasks import send_periodic_task
from triggers.schedules.rules.crontab import Cron
from triggers.schedules.rules.interval import Interval
from triggers.schedules.rules.once import Clocked
from triggers.schedules.rules.rule import Rule
from triggers.schedules.static_entries import install_static
from triggers.schedules.terms.policy import SchedulePolicy

pytestmark = pytest.mark.django_db

# Years ahead of the database's clock, which stamps edits: what is tested never depends on the day it is tested.
NINE = datetime(2050, 3, 7, 9, 0, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


def make_schedule(
    rule: Rule | None = None, *, trigger: Trigger | None = None, seen_at: datetime = NINE, **fields: Any
) -> Schedule:
    """A schedule that was edited at `seen_at` and settled."""
    trigger = trigger or Trigger.objects.filter(slug="digest").first() or make_trigger("digest", types=[])
    catch_up = fields.pop("catch_up", "latest")
    schedule = rows.add_schedule(
        trigger, name=fields.pop("name", "digest"), rule=rule or every(MINUTE), policy=SchedulePolicy(catch_up=catch_up)
    )
    if fields:
        PeriodicTask.objects.filter(pk=schedule.task_id).update(**fields)
    return settled(schedule, seen_at)


def settled(schedule: Schedule, edited_at: datetime | None = None) -> Schedule:
    """What Beat makes of its last edit, dated as the test needs it."""
    if edited_at:
        date_edit(schedule, edited_at)
    due_schedules.settle()
    return Schedule.objects.select_related("task").get(pk=schedule.pk)


def date_edit(schedule: Schedule, at: datetime) -> None:
    """Let the last edit have been made at another time than now."""
    Revision.objects.filter(schedule=schedule, until__lt=NINE - timedelta(days=365)).update(until=at)
    Schedule.objects.filter(pk=schedule.pk).update(edited_at=at)


def every(length: timedelta) -> Interval:
    return Interval(every=length)


def fire_all(now: datetime) -> list[datetime]:
    """Everything due at `now`, batch by batch; the nominal times of all events so far."""
    while due_schedules.fire_due(now):
        pass
    return nominals()


def nominals() -> list[datetime]:
    return [event.time for event in Event.objects.filter(type="schedule.fired").order_by("seq") if event.time]


def skipped() -> list[tuple[str, datetime, datetime, int | None]]:
    return list(Skip.objects.order_by("id").values_list("reason", "first", "last", "count"))


# Ticks and their events


def test_due_tick_becomes_an_event_for_its_trigger() -> None:
    schedule = make_schedule(Cron.parse("30 9 * * *", "Europe/Vienna"), seen_at=NINE - HOUR)
    nominal = datetime(2050, 3, 7, 8, 30, tzinfo=UTC)

    fire_all(nominal)

    event = Event.objects.select_related("source").get()
    assert (event.source.slug, event.type, event.time) == ("schedule", "schedule.fired", nominal)
    assert (event.ce_source, event.ce_id) == ("digest", f"{schedule.task_id}:2050-03-07T08:30:00+00:00")
    assert event.data == {
        "schedule": "digest",
        "nominal": "2050-03-07T08:30:00+00:00",
        "due": "2050-03-07T08:30:00+00:00",
    }
    assert event.target_id == schedule.trigger_id


def test_firing_advances_the_schedule_and_counts_its_task() -> None:
    schedule = make_schedule(every(MINUTE))
    now = NINE + MINUTE + timedelta(seconds=1)

    fire_all(now)

    schedule.refresh_from_db()
    assert (schedule.last_fire_at, schedule.next_fire_at) == (NINE + MINUTE, NINE + 2 * MINUTE)
    assert (schedule.task.last_run_at, schedule.task.total_run_count) == (now, 1)
    assert not schedule.stale


def test_a_batch_takes_the_oldest_first() -> None:
    for number in range(5):
        make_schedule(every(MINUTE * (number + 1)), trigger=make_trigger(f"t{number}"), name=f"t{number}")

    assert due_schedules.fire_due(NINE + HOUR, limit=2) == 2
    assert {event.ce_source for event in Event.objects.all()} == {"t0", "t1"}


# Missed ticks


def test_skip_fires_no_missed_tick() -> None:
    schedule = make_schedule(every(HOUR), catch_up="skip")

    assert fire_all(NINE + 5 * HOUR + 10 * MINUTE) == []
    schedule.refresh_from_db()
    assert schedule.next_fire_at == NINE + 6 * HOUR
    assert schedule.task.last_run_at is None


def test_catch_up_all_fires_every_missed_tick_batch_by_batch() -> None:
    make_schedule(every(MINUTE), catch_up="all")

    assert due_schedules.fire_due(NINE + 10 * HOUR) == 1
    assert len(nominals()) == decide.TICKS
    assert fire_all(NINE + 10 * HOUR) == [NINE + n * MINUTE for n in range(1, 601)]


def test_schedules_that_catch_up_share_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (due_schedules, settle):
        monkeypatch.setattr(module, "TICKS", 6)
    for name in ("a", "b"):
        make_schedule(every(MINUTE), trigger=make_trigger(name), name=name, catch_up="all")

    due_schedules.fire_due(NINE + HOUR)

    assert sorted(nominals()) == sorted(2 * [NINE + n * MINUTE for n in (1, 2, 3)])


@pytest.mark.parametrize("catch_up", ["latest", "skip", "all"])
def test_tick_late_by_a_restart_is_on_time(catch_up: str) -> None:
    make_schedule(every(HOUR), catch_up=catch_up)

    assert fire_all(NINE + HOUR + decide.GRACE) == [NINE + HOUR]


@pytest.mark.parametrize("catch_up", ["latest", "skip", "all"])
def test_hiccup_loses_no_tick_of_a_fast_schedule(catch_up: str) -> None:
    second = timedelta(seconds=1)
    make_schedule(every(second), catch_up=catch_up)

    assert fire_all(NINE + 2.5 * second) == [NINE + second, NINE + 2 * second]


@pytest.mark.parametrize("catch_up", ["latest", "skip"])
def test_tick_superseded_by_a_later_one_was_missed(catch_up: str) -> None:
    make_schedule(every(timedelta(seconds=5)), catch_up=catch_up)

    assert fire_all(NINE + timedelta(seconds=21)) == [NINE + timedelta(seconds=20)]


def test_missed_ticks_end_where_the_task_expires() -> None:
    make_schedule(every(HOUR), catch_up="latest", expires=NINE + 3 * HOUR + MINUTE)

    assert fire_all(NINE + 9 * HOUR) == [NINE + 3 * HOUR]


# Once, and limits


def test_a_one_shot_fires_once_and_retires() -> None:
    schedule = make_schedule(Clocked(at=NINE + HOUR))

    assert fire_all(NINE + HOUR) == [NINE + HOUR]
    assert fire_all(NINE + 9 * HOUR) == [NINE + HOUR]
    schedule.refresh_from_db()
    assert schedule.task.enabled is False
    assert schedule.task.total_run_count == 1
    assert (schedule.next_fire_at, schedule.stale) == (None, False)


def test_a_one_shot_fires_although_its_row_was_committed_after_its_time() -> None:
    make_schedule(Clocked(at=NINE), seen_at=NINE + HOUR)

    assert fire_all(NINE + 2 * HOUR) == [NINE]


def test_retired_one_shot_that_is_enabled_again_does_not_repeat() -> None:
    schedule = make_schedule(Clocked(at=NINE))
    fire_all(NINE)

    PeriodicTask.objects.filter(pk=schedule.task_id).update(enabled=True)
    settled(schedule)

    assert fire_all(NINE + HOUR) == [NINE]


def test_one_off_interval_fires_once() -> None:
    make_schedule(every(HOUR), one_off=True, catch_up="all")

    assert fire_all(NINE + 9 * HOUR) == [NINE + HOUR]


def test_closed_times_before_a_one_off_fires_are_skips() -> None:
    schedule = make_schedule(every(HOUR), one_off=True)
    Schedule.objects.filter(pk=schedule.pk).update(active_hours="12:00-13:00")
    settled(schedule, NINE)

    assert fire_all(NINE + 9 * HOUR) == [NINE + 3 * HOUR]
    assert skipped() == [("inactive", NINE + HOUR, NINE + 2 * HOUR, 2)]


def test_crontab_waits_for_its_start() -> None:
    make_schedule(Cron.parse("0 * * * *"), start_time=NINE + 2 * HOUR, catch_up="all")

    assert fire_all(NINE + 3 * HOUR) == [NINE + 2 * HOUR, NINE + 3 * HOUR]


# Edits


def test_stale_schedule_does_not_fire_before_it_is_recomputed() -> None:
    schedule = make_schedule(every(MINUTE))

    PeriodicTask.objects.filter(pk=schedule.task_id).update(one_off=True)

    assert Schedule.objects.get().stale
    assert fire_all(NINE + MINUTE) == []
    settled(schedule)
    assert fire_all(NINE + MINUTE) == [NINE + MINUTE]


def edit_by_queryset(task: PeriodicTask) -> None:
    IntervalSchedule.objects.filter(pk=task.interval_id).update(every=10)


def edit_by_sql(task: PeriodicTask) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE django_celery_beat_intervalschedule SET every = 10 WHERE id = %s::int", [task.interval_id]
        )


def edit_by_save(task: PeriodicTask) -> None:
    task.interval, _ = IntervalSchedule.objects.get_or_create(every=10, period="minutes")
    task.save()


@pytest.mark.parametrize("edit", [edit_by_queryset, edit_by_sql, edit_by_save])
def test_edited_interval_counts_from_its_edit(edit: Any) -> None:
    schedule = make_schedule(every(MINUTE))

    edit(schedule.task)

    assert Schedule.objects.get().stale
    assert settled(schedule, NINE + 30 * timedelta(seconds=1)).next_fire_at == NINE + 10.5 * MINUTE


def test_edit_of_a_rule_makes_every_schedule_that_shares_it_stale() -> None:
    first, second = (make_schedule(trigger=make_trigger(name), name=name) for name in ("a", "b"))
    assert first.task.interval_id == second.task.interval_id

    edit_by_queryset(first.task)

    assert Schedule.objects.filter(stale=True).count() == 2


@pytest.mark.parametrize("change", [{"name": "renamed"}, {"description": "other words"}, {"args": "[1]"}, {}])
def test_save_that_changes_no_rule_is_no_edit(change: dict[str, str]) -> None:
    schedule = make_schedule(every(MINUTE))
    for name, value in change.items():
        setattr(schedule.task, name, value)

    schedule.task.save()

    assert not Schedule.objects.get().stale


def test_same_rule_from_another_row_keeps_the_anchor() -> None:
    schedule = make_schedule(every(MINUTE))
    schedule.task.interval = IntervalSchedule.objects.create(every=60, period="seconds")

    schedule.task.save()

    assert Schedule.objects.get().stale
    assert settled(schedule, NINE + 30 * timedelta(seconds=1)).next_fire_at == NINE + MINUTE


@pytest.mark.parametrize("beat_saw_it_off", [True, False])
def test_enabling_again_counts_afresh_and_catches_nothing_up(beat_saw_it_off: bool) -> None:
    schedule = make_schedule(every(HOUR), catch_up="all")
    task = PeriodicTask.objects.filter(pk=schedule.task_id)

    task.update(enabled=False)
    date_edit(schedule, NINE + 0.25 * HOUR)
    if beat_saw_it_off:
        settled(schedule)
    task.update(enabled=True)

    assert settled(schedule, NINE + 5.25 * HOUR).next_fire_at == NINE + 6.25 * HOUR
    assert fire_all(NINE + 6 * HOUR) == []
    assert skipped() == [("paused", NINE + HOUR, NINE + 5 * HOUR, 5)]


def test_tick_between_the_edit_and_beats_look_is_not_lost() -> None:
    """Created at 08:59:50, while Beat was away; back at 09:00:05."""
    make_schedule(Cron.parse("0 9 * * *"), seen_at=NINE - timedelta(seconds=10))

    assert fire_all(NINE + timedelta(seconds=5)) == [NINE]


def test_clocked_rule_that_moves_is_armed_again() -> None:
    schedule = make_schedule(Clocked(at=NINE))
    fire_all(NINE)

    rows.set_rule(schedule, Clocked(at=NINE + HOUR))
    settled(schedule)

    assert fire_all(NINE + HOUR) == [NINE, NINE + HOUR]


# What cannot fire shows its problem, and stops no other


def test_rule_that_makes_no_sense_is_recorded_and_others_fire() -> None:
    broken = make_schedule(Cron.parse("0 9 * * *"), trigger=make_trigger("a"), name="broken")
    make_schedule(every(MINUTE), trigger=make_trigger("b"), name="sound")

    CrontabSchedule.objects.update(hour="25")

    assert settled(broken).problem == "hour 25 is not between 0 and 23"
    assert fire_all(NINE + MINUTE) == [NINE + MINUTE]

    CrontabSchedule.objects.update(hour="10")
    assert settled(broken, NINE).problem == ""
    assert fire_all(NINE + HOUR)[-1] == NINE + HOUR


def test_row_that_postgres_refuses_stops_no_other_schedule() -> None:
    make_schedule(trigger=make_trigger("a"), name="full", total_run_count=2**31 - 1)
    make_schedule(trigger=make_trigger("b"), name="sound")

    fire_all(NINE + MINUTE)

    assert [event.ce_source for event in Event.objects.all()] == ["sound"]
    assert "out of range" in Schedule.objects.get(task__name="full").problem


# The user's ordinary periodic tasks


def make_periodic_task(**fields: Any) -> Schedule:
    interval = IntervalSchedule.objects.create(every=1, period="minutes")
    values = {"name": "clean", "task": "shop.tasks.clean", "args": '["all"]', "kwargs": '{"days": 3}', **fields}
    task = PeriodicTask.objects.create(interval=interval, **values)
    return settled(Schedule.objects.get(task=task), NINE)


def test_ordinary_task_goes_to_the_outbox_instead() -> None:
    schedule = make_periodic_task(queue="slow", headers='{"tenant": "a"}', priority=3, expire_seconds=60)

    fire_all(NINE + MINUTE)

    message = OutboxMessage.objects.get()
    assert not Event.objects.exists()
    assert (message.topic, message.key) == ("task", f"{schedule.task_id}:2050-03-07T09:01:00+00:00")
    assert message.payload == {
        "task": "shop.tasks.clean",
        "args": ["all"],
        "kwargs": {"days": 3},
        "queue": "slow",
        "exchange": None,
        "routing_key": None,
        "headers": {"tenant": "a", "periodic_task_name": "clean", "celery_beat_task": True},
        "priority": 3,
        "expires": 60,
    }


def test_ordinary_task_whose_arguments_are_no_json_shows_it_and_goes_on_once_they_are() -> None:
    schedule = make_periodic_task(args="[oops")

    fire_all(NINE + MINUTE)

    schedule.refresh_from_db()
    assert "its args are not JSON" in schedule.problem
    assert not OutboxMessage.objects.exists()

    PeriodicTask.objects.filter(pk=schedule.task_id).update(args="[]")
    fire_all(NINE + 2 * MINUTE)
    schedule.refresh_from_db()
    assert schedule.problem == ""
    assert OutboxMessage.objects.count() == 1


@pytest.mark.parametrize("task", ["celery.backend_cleanup", "somebody.elses.task"])
def test_message_is_sent_as_celery_beat_would(monkeypatch: pytest.MonkeyPatch, task: str) -> None:
    schedule = make_periodic_task(task=task, args="[]", kwargs="{}", queue="slow", expires=NINE + HOUR)
    fire_all(NINE + MINUTE)
    sent: list[tuple[str, Any, Any, Mapping[str, Any]]] = []

    def send_task(self: Celery, name: str, args: Any = None, kwargs: Any = None, **options: Any) -> None:
        sent.append((name, args, kwargs, options))

    monkeypatch.setattr(Celery, "send_task", send_task)
    send_periodic_task(OutboxMessage.objects.get().payload)

    [(name, args, kwargs, options)] = sent
    assert (name, args, kwargs) == (task, [], {})
    assert (options["queue"], options["expires"]) == ("slow", NINE + HOUR)
    assert options["headers"]["periodic_task_name"] == schedule.task.name


# Looks


def test_look_finds_all_due_work() -> None:
    assert (due_schedules.find_due().has_stale, due_schedules.find_due().next_due) == (False, None)

    schedule = make_schedule(every(MINUTE))
    assert due_schedules.find_due().next_due == NINE + MINUTE
    assert not due_schedules.find_due().is_due

    PeriodicTask.objects.filter(pk=schedule.task_id).update(enabled=False)
    assert due_schedules.find_due().has_stale


@pytest.fixture
def maintained(transactional_db: None) -> Iterator[Scheduler]:
    app = Celery("static", set_as_current=False)
    app.conf.beat_schedule = {
        name: {"task": name, "schedule": crontab(minute="*/5")} for name in ("wakeful.prune", "wakeful.tables")
    }
    with connection.cursor() as cursor:  # another test may have left some
        cursor.execute("SELECT oid::regprocedure::text FROM pg_proc WHERE starts_with(proname, 'wakeful_change_')")
        for (function,) in cursor.fetchall():
            cursor.execute(f"DROP FUNCTION {function} CASCADE")
    scheduler = Scheduler(app)
    yield scheduler
    scheduler.close()


def maintenance_after_a_look(scheduler: Scheduler) -> set[str]:
    scheduler.walks_at = 0.0
    scheduler.look()
    return set(PeriodicTask.objects.filter(task__startswith="wakeful.").values_list("name", flat=True))


@pytest.mark.django_db(transaction=True)
def test_maintenance_of_watched_tables_has_no_row_before_a_table_is_watched(maintained: Scheduler) -> None:
    assert maintenance_after_a_look(maintained) == {"wakeful.prune"}

    source = Source.objects.create(slug="orders", kind="table", enabled=False)
    assert maintenance_after_a_look(maintained) == {"wakeful.prune", "wakeful.tables"}

    PeriodicTask.objects.filter(name="wakeful.tables").update(enabled=False)
    source.delete()
    assert maintenance_after_a_look(maintained) == {"wakeful.prune", "wakeful.tables"}
    assert not PeriodicTask.objects.get(name="wakeful.tables").enabled  # as its operator wants it


@pytest.mark.django_db(transaction=True)
def test_maintenance_of_watched_tables_removes_what_a_source_that_was_soon_deleted_has_left(
    maintained: Scheduler,
) -> None:
    name = "wakeful_change_0198c0de000070008000000000000000_insert"
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
        assert maintenance_after_a_look(maintained) == {"wakeful.prune", "wakeful.tables"}
        cursor.execute(f"DROP FUNCTION {name}")


def test_static_entries_of_celery_become_rows(settings: Any) -> None:
    app = Celery("static", set_as_current=False)
    app.conf.beat_schedule = {
        "sweep": {"task": "shop.tasks.sweep", "schedule": 30.0, "args": (1,)},
        "nonsense": {"task": "shop.tasks.nonsense"},
    }

    assert install_static(app, watches_tables=False)
    written = PeriodicTask.objects.get(name="sweep").date_changed
    assert install_static(app, watches_tables=False)

    assert PeriodicTask.objects.get(name="sweep").date_changed == written  # the same again is no edit
    app.conf.beat_schedule["sweep"] = {**app.conf.beat_schedule["sweep"], "args": (2,)}
    assert install_static(app, watches_tables=False)

    task = PeriodicTask.objects.get(name="sweep")
    assert (task.task, json.loads(task.args), str(task.interval)) == ("shop.tasks.sweep", [2], "every 30 seconds")
    assert set(PeriodicTask.objects.values_list("name", flat=True)) == {"sweep", "celery.backend_cleanup"}
