"""Rules by the sun: Celery's own, with ephem under it."""

import sys
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from typing import Any

import pytest
from celery.schedules import solar
from django_celery_beat.models import PeriodicTask, SolarSchedule
from hypothesis import given, settings
from hypothesis import strategies as st

from triggers.exceptions import RuleError
from triggers.models import Schedule
from triggers.schedules.firing import due_schedules
from triggers.schedules.rules.as_json import parse_rule, rule_as_json
from triggers.schedules.rules.rows import point, rule_of
from triggers.schedules.rules.sun import Solar

VIENNA = {"latitude": 48.2, "longitude": 16.37}
MIDSUMMER = datetime(2026, 6, 21, 12, tzinfo=UTC)


def test_sunrise_is_when_the_sun_rises() -> None:
    first, second = islice(Solar(event="sunrise", **VIENNA).fires(MIDSUMMER), 2)

    assert [f"{first:%d %H:%M}", f"{second:%d %H:%M}"] == ["22 02:54", "23 02:54"]


@settings(max_examples=40)
@given(
    event=st.sampled_from(["sunrise", "sunset", "solar_noon", "dawn_civil", "dusk_astronomical"]),
    latitude=st.integers(-75, 75),
    longitude=st.integers(-180, 180),
    start=st.datetimes(datetime(2024, 1, 1), datetime(2030, 1, 1)).map(lambda at: at.replace(tzinfo=UTC)),
)
def test_times_are_celerys_and_the_same_wherever_one_starts(
    event: str, latitude: int, longitude: int, start: datetime
) -> None:
    rule = Solar(event=event, latitude=latitude, longitude=longitude)
    times = list(islice(rule.fires(start), 6))

    assert times[0] > start
    assert times == sorted(set(times))
    for before, after in pairwise(times):
        assert next(rule.fires(before)) == next(rule.fires(before + (after - before) / 2)) == after
        theirs = their_wait(event, latitude, longitude, before + timedelta(hours=1))
        assert abs(before + timedelta(hours=1) + theirs - after) <= timedelta(seconds=2)


def their_wait(event: Any, latitude: int, longitude: int, now: datetime) -> timedelta:
    return solar(event, latitude, longitude, nowfun=lambda: now).remaining_estimate(now)


def test_where_the_sun_does_not_set_for_weeks_sunset_waits() -> None:
    tromso = Solar(event="sunset", latitude=69.65, longitude=18.96)

    found = next(tromso.fires(MIDSUMMER))

    assert (found.month, found.day) == (7, 25) or (found.month, found.day) == (7, 26)


def test_a_solar_event_that_never_happens_has_no_time() -> None:
    assert list(Solar(event="sunset", latitude=90, longitude=0).fires(MIDSUMMER)) == []


@pytest.mark.django_db
def test_a_solar_row_fires_at_its_time() -> None:
    row = SolarSchedule.objects.create(event="sunrise", latitude="48.2", longitude="16.37")
    PeriodicTask.objects.create(name="dawn", task="shop.tasks.open", solar=row)

    due_schedules.settle()

    schedule = Schedule.objects.select_related("task__solar").get()
    rule = rule_of(schedule.task)
    assert schedule.next_fire_at == next(rule.fires(schedule.edited_at))
    assert rule.words == "at sunrise (48.2° N, 16.37° E)"
    assert parse_rule(**rule_as_json(rule)) == rule
    point(schedule.task, rule)
    assert schedule.task.solar == row


@pytest.mark.parametrize(
    ("event", "latitude", "message"),
    [("moonrise", 0, "moonrise"), ("sunrise", 91, "latitude"), ("sunrise", -91, "latitude")],
)
def test_an_invalid_solar_event_or_place_is_refused(event: str, latitude: float, message: str) -> None:
    with pytest.raises(RuleError, match=message):
        Solar(event=event, latitude=latitude, longitude=0)


@pytest.mark.django_db
def test_without_its_library_a_solar_row_shows_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ephem", None)
    row = SolarSchedule.objects.create(event="sunrise", latitude=48, longitude=16)
    PeriodicTask.objects.create(name="dawn", task="shop.tasks.open", solar=row)

    due_schedules.settle()

    assert Schedule.objects.get().problem == (
        "rules by the sun need the package ephem: install wakeful[solar], or use a crontab"
    )
