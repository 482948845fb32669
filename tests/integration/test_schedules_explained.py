"""What a person would not have expected of a schedule, and the answer to "why?" about it."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from threading import Thread
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from tests.support.examples import some_cases
from tests.support.points import Points
from tests.support.stack import Process, Stack, StackMaker, eventually
from tests.support.triggers import make_trigger
from tests.triggers.schedules.test_why import alive, ask, dated, make_schedule
from tests.triggers.schedules.test_why import beat as look
from triggers.models import Event, Schedule
from triggers.schedules import edit as schedules
from triggers.schedules.explain.why import Verdict, why
from triggers.schedules.rules.interval import Interval

HOUR, SECOND = timedelta(hours=1), timedelta(seconds=1)
VIENNA = ZoneInfo("Europe/Vienna")

EDITS = {
    "switched off": (
        "UPDATE django_celery_beat_periodictask SET enabled = false WHERE id = %s",
        Verdict.PAUSED,
        "paused",
    ),
    "ended": ("UPDATE django_celery_beat_periodictask SET expires = now() WHERE id = %s", Verdict.ENDED, "its end"),
    "given another rule": (
        "WITH row AS (INSERT INTO django_celery_beat_intervalschedule (every, period) VALUES (7, 'days') RETURNING id)"
        " UPDATE django_celery_beat_periodictask task SET interval_id = row.id, start_time = NULL FROM row WHERE task.id = %s",
        Verdict.NOT_NAMED,
        "every 7 days",
    ),
}


@pytest.fixture(scope="module")
def beat_with_points(make_shared_stack: StackMaker) -> tuple[Stack, Process, Points]:
    stack = make_shared_stack()
    points = Points(stack.folder / "points")
    return stack, stack.start("beat", env=points.env), points


@pytest.mark.parametrize("edit", EDITS)
def test_tick_in_flight_when_its_schedule_is_edited_fires_and_the_edit_explains_what_follows(
    beat_with_points: tuple[Stack, Process, Points], edit: str
) -> None:
    stack, _, points = beat_with_points
    statement, verdict, says = EDITS[edit]
    points.arm("before_tick_commit", "wait")
    schedule = make_hourly(stack, edit)
    eventually(lambda: points.hit("before_tick_commit"))

    editor = start(lambda: stack.query(statement, schedule.task_id))
    eventually(lambda: stack.query("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"))
    assert editor.is_alive()  # the tick holds the row
    points.release("before_tick_commit")
    editor.join()
    eventually(lambda: not stack.query("SELECT 1 FROM triggers_schedule WHERE stale"))

    with stack.orm():
        nominal = Event.objects.get(ce_source=edit).time
        assert nominal
        fired, after = why(fresh(schedule), nominal), why(fresh(schedule), nominal + HOUR)
    assert (fired.verdict, fired.nominal) == (Verdict.FIRED, nominal)
    assert after.verdict == verdict, after.text
    assert says in after.text


def make_hourly(stack: Stack, name: str) -> Schedule:
    """A schedule that fires at once, and then every hour."""
    with stack.orm():
        trigger = make_trigger(f"hourly-{len(name)}", types=[])
        schedule = schedules.create_schedule(name=name, trigger=trigger, rule=Interval(every=HOUR), by="cli:test")
        stack.query(
            "UPDATE django_celery_beat_periodictask SET start_time = clock_timestamp() + '1 s' WHERE id = %s",
            schedule.task_id,
        )
    return schedule


def fresh(schedule: Schedule) -> Schedule:
    return Schedule.objects.select_related("task", "trigger").get(pk=schedule.pk)


def start(work: Callable[[], Any]) -> Thread:
    thread = Thread(target=work, daemon=True)
    thread.start()
    return thread


# Simulated: a Beat that ticks until the evening, and again from the next morning on

NIGHTS = {"spring": datetime(2050, 3, 26, 12, tzinfo=UTC), "autumn": datetime(2050, 10, 29, 12, tzinfo=UTC)}


@pytest.mark.django_db
@pytest.mark.parametrize("policy", some_cases(["latest", "skip", "all"]))
@pytest.mark.parametrize("night", NIGHTS)
def test_every_half_hour_of_a_night_in_which_the_clocks_changed_and_no_beat_ran_is_explained(
    night: str, policy: str
) -> None:
    noon = NIGHTS[night]
    evening, morning = noon + 10 * HOUR, noon + 22.5 * HOUR
    schedule = make_schedule("*/30 * * * *", since=noon)
    Schedule.objects.filter(pk=schedule.pk).update(catch_up=policy, edited_at=noon)
    alive(noon, evening)
    for half_hours in range(21):
        look(schedule, noon + half_hours * HOUR / 2)
    alive(morning, morning + HOUR)
    look(schedule, morning + SECOND)

    midnight = datetime.combine((noon + 12 * HOUR).astimezone(VIENNA).date(), datetime.min.time())
    answers = [ask(schedule, midnight + n * HOUR / 2) for n in range(2, 20)]
    newest = ask(schedule, morning)
    assert [answer.verdict for answer in answers] == [Verdict.FIRED if policy == "all" else Verdict.SKIPPED] * 18
    assert newest.verdict == Verdict.FIRED  # on time, whatever the policy
    if policy != "all":  # their events came by the database's clock, which is years before
        assert all("No Beat was alive from" in answer.text for answer in answers)
    explained = [answer.text for answer in answers if "does not exist" in answer.text or "comes twice" in answer.text]
    assert len(explained) == 2  # 02:00 and 02:30

    if night == "autumn":
        second_pass = [second_showing(midnight + n * HOUR / 2) for n in (4, 5)]
        again = [ask(schedule, instant) for instant in second_pass]
        assert [answer.nominal for answer in again] == second_pass
        assert {answer.verdict for answer in again} == {answer.verdict for answer in answers}


@pytest.mark.django_db
def test_night_without_a_beat_in_which_the_zone_was_changed_too_shows_what_held_when() -> None:
    noon = NIGHTS["spring"]
    schedule = make_schedule("30 2 * * *", since=noon)
    Schedule.objects.filter(pk=schedule.pk).update(catch_up="all")
    crontab = schedule.task.crontab
    crontab.timezone = ZoneInfo("America/New_York")
    crontab.save()
    dated(schedule, noon + 14 * HOUR)  # an hour after the clocks of Vienna went forward
    alive(noon, noon + 6 * HOUR)
    look(schedule, noon + 22 * HOUR)

    in_vienna = ask(schedule, noon + 13 * HOUR)
    in_new_york = ask(schedule, noon + 18.5 * HOUR)
    assert (in_vienna.verdict, in_vienna.zone) == (Verdict.FIRED, "Europe/Vienna")
    assert (in_new_york.verdict, in_new_york.zone) == (Verdict.FIRED, "America/New_York")
    next_day = ask(schedule, noon + 36.5 * HOUR)
    assert next_day.verdict == Verdict.NOT_NAMED
    assert "Europe/Vienna" in next_day.text  # until when it was its zone, and who changed it


def second_showing(local: datetime) -> datetime:
    return local.replace(tzinfo=VIENNA, fold=1).astimezone(UTC)
