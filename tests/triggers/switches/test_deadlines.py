"""Switches with a time of day to come by: each deadline opens once for each key that it expects and that did not come."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db.models import F
from hypothesis import given, settings
from hypothesis import strategies as some

from runs.db.sql import database_now
from tests.support.switches import data_of, episodes, make_switch, open_due, timer, work
from tests.support.triggers import make_event
from triggers.dispatch.batch import arm_switches
from triggers.dispatch.rules import Rules
from triggers.matching.pending import Item
from triggers.models import Event, Source, SwitchTimer
from triggers.sources.edit import change_source
from triggers.sources.settings import InvalidSettings
from triggers.sources.switches.absence import Absence
from triggers.switches.switch import Switch, switch_of
from triggers.switches.timer import Timer, Transition

MONDAY = datetime(2026, 3, 2, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
BY_THREE: dict[str, Any] = {"types": "ci.passed", "by": "15:00", "since": "12:00"}


def at(hour: float, day: int = 0) -> datetime:
    return MONDAY + day * DAY + hour * HOUR


def switch(**given: Any) -> Switch:
    return switch_of(uuid4(), "ci", "absence", {**BY_THREE, **given})


def begun(of: Switch, hour: float = 9) -> Timer:
    timer = Timer(source_id=of.id)
    timer.expect(of, at(hour))
    return timer


def come(timer: Timer, of: Switch, when: datetime, seen: datetime | None = None) -> list[tuple[str, datetime | None]]:
    item = Item(
        event_id=uuid4(), source="ci", type="ci.passed", subject="", time=when, received_at=when, target_id=None, root_id=uuid4(),
        depth=0,
    )  # fmt: skip
    return recorded(timer.see(of, item, seen or when))


def look(timer: Timer, of: Switch, when: datetime) -> list[tuple[str, datetime | None]]:
    return recorded(timer.miss(of, when, when))


def recorded(transitions: list[Transition]) -> list[tuple[str, datetime | None]]:
    return [("opened" if one.is_open else "closed", one.due_at) for one in transitions]


def test_an_event_in_time_leads_to_the_next_deadline_and_none_opens_it() -> None:
    ci = switch()
    timer = begun(ci)
    assert (timer.due_at, timer.look_at) == (at(15), at(15))

    assert come(timer, ci, at(13)) == []
    assert timer.due_at == at(15, day=1)
    assert look(timer, ci, at(15, day=1)) == []  # not before it has passed
    assert look(timer, ci, at(15.001, day=1)) == [("opened", at(15, day=1))]


def test_an_event_before_the_time_since_which_it_counts_does_not() -> None:
    ci = switch()
    timer = begun(ci)

    come(timer, ci, at(11.99))

    assert timer.due_at == at(15)
    assert look(timer, ci, at(16)) == [("opened", at(15))]


@pytest.mark.parametrize("hour", [12, 15])
def test_an_event_exactly_at_the_beginning_or_at_the_deadline_is_in_time(hour: float) -> None:
    ci = switch()
    timer = begun(ci)

    assert come(timer, ci, at(hour), seen=at(17)) == []
    assert timer.due_at == at(15, day=1)


def test_an_event_after_a_deadline_that_nothing_has_looked_at_opens_and_closes_it() -> None:
    ci = switch()
    timer = begun(ci)

    assert come(timer, ci, at(15.5), seen=at(17)) == [("opened", at(15)), ("closed", at(15))]
    assert (timer.state, timer.due_at) == ("waiting", at(15, day=1))


def test_the_grace_is_time_to_come_in() -> None:
    ci = switch(grace="30m")
    timer = begun(ci)
    assert (timer.due_at, timer.look_at) == (at(15), at(15.5))

    assert come(timer, ci, at(15.5)) == []
    assert look(timer, ci, at(15.6, day=1)) == [("opened", at(15, day=1))]


def test_each_deadline_opens_again_while_the_event_stays_away() -> None:
    ci = switch()
    timer = begun(ci)

    assert [look(timer, ci, at(15.1, day)) for day in (0, 0, 1)] == [
        [("opened", at(15))],
        [],
        [("opened", at(15, day=1))],
    ]
    assert timer.episode == 2
    assert come(timer, ci, at(10, day=2)) == [("closed", at(15, day=1))]
    assert timer.due_at == at(15, day=2)  # it came too early to count for this day


def test_of_several_deadlines_in_an_outage_the_newest_opens_and_it_shows_how_many_it_stands_for() -> None:
    ci = switch()
    timer = begun(ci)

    [opened] = timer.miss(ci, at(16, day=3), at(16, day=3))

    assert (opened.due_at, opened.missed, opened.since) == (at(15, day=3), 4, at(12, day=3))
    assert timer.look_at == at(15, day=4)


def test_a_switch_that_begins_within_the_time_watches_from_then() -> None:
    ci = switch()
    timer = begun(ci, hour=13)

    [opened] = timer.miss(ci, at(15.1), at(15.1))

    assert (opened.since, opened.missed) == (at(13), 1)


def test_it_expects_nothing_of_days_that_are_not_named() -> None:
    ci = switch(days="mon-fri")
    timer = begun(ci)
    come(timer, ci, at(13, day=4))  # Friday

    assert timer.due_at == at(15, day=7)


def test_an_event_that_begins_the_time_has_the_next_deadline_to_be_answered() -> None:
    paid = switch_of(
        uuid4(), "paid", "absence", {"types": "paid", "of_types": "placed", "key": "event.data.order", "by": "15:00"}
    )

    assert [paid.due(at(hour)) for hour in (9, 15, 16)] == [at(15), at(15, day=1), at(15, day=1)]
    assert not paid.recurring


@settings(max_examples=20)
@given(
    some.lists(some.integers(0, 8 * 24 * 2).map(lambda half: half / 2), max_size=12, unique=True).map(sorted),
    some.sampled_from([("15:00", "12:00"), ("15:00", ""), ("08:00", "20:00"), ("08:00", "08:00")]),
    some.sampled_from(["", "mon-fri", "sat, tue"]),
    some.sampled_from(["0s", "1h"]),
)
def test_looked_at_at_every_moment_it_opens_exactly_the_deadlines_without_an_event(
    hours: list[float], times: tuple[str, str], days: str, grace: str
) -> None:
    of = switch(by=times[0], since=times[1], days=days, grace=grace)
    assert of.recurring
    timer, opened = begun(of, hour=0), []
    for tick in range(9 * 24 * 2):
        if (now := tick / 2) in hours:
            opened += come(timer, of, at(now))
        opened += look(timer, of, at(now))

    spans = deadlines(of, at(9 * 24 - 0.5))
    wanted = [end for begin, end in spans if not any(begin <= at(hour) <= end + of.grace for hour in hours)]
    assert [due for word, due in opened if word == "opened"] == wanted


def deadlines(of: Switch, until: datetime) -> Iterator[tuple[datetime, datetime]]:
    assert of.recurring
    begin, end = of.recurring.ending_after(at(0))
    while end + of.grace < until:
        yield begin, end
        begin, end = of.recurring.ending_after(end)


# In the database


@pytest.fixture
def a_minute_ago(db: None) -> str:
    """A time of day in UTC whose deadline is over, and was not yet when the switch began: see `arm_before`."""
    return f"{database_now().astimezone(UTC) - timedelta(minutes=1):%H:%M}"


def make_deadline(by: str, **settings: Any) -> Source:
    """A switch that began two hours before the deadline that was over a minute ago."""
    source = make_switch("ci", **{"types": "ci.passed", "by": by, "since": by, **settings})
    began = database_now() - 2 * HOUR
    SwitchTimer.objects.update(since=began, due_at=F("due_at") - DAY, look_at=F("look_at") - DAY)
    arm_switches(Rules())
    return source


def test_a_deadline_opens_once_and_closes_when_the_event_comes_after_all(a_minute_ago: str) -> None:
    make_deadline(a_minute_ago)

    work()
    work()
    assert episodes("ci") == [("absence.opened", "")]
    data = data_of(type="absence.opened")
    assert data["missed"] == 1 and data["late_by"] > 0
    assert timer("ci").look_at > database_now() + 23 * HOUR  # type: ignore[operator]

    make_event(type="ci.passed")
    work()
    assert episodes("ci") == [("absence.opened", ""), ("absence.closed", "")]


def test_an_event_that_waits_for_dispatch_since_before_the_deadline_is_in_time(a_minute_ago: str) -> None:
    source = make_switch("ci", types="ci.passed", by=a_minute_ago, since=a_minute_ago)
    over = end_after(source, make_event(type="ci.passed"))

    assert open_due() == 1  # it is looked at, and put off
    assert episodes("ci") == []
    SwitchTimer.objects.update(look_at=over)
    work()

    assert episodes("ci") == []
    assert timer("ci").due_at > over  # type: ignore[operator]


def test_each_listed_key_is_expected_and_no_other(a_minute_ago: str) -> None:
    keys = {"key": "event.data.branch", "keys": "main, release"}
    source = make_switch("ci", types="ci.passed", by=a_minute_ago, since=a_minute_ago, **keys)
    for branch in ("main", "feature"):
        last = make_event(type="ci.passed", data={"branch": branch})
    end_after(source, last)

    work()

    assert episodes("ci") == [("absence.opened", "release")]
    assert set(SwitchTimer.objects.values_list("key", flat=True)) == {"main", "release"}


def end_after(source: Source, event: Event) -> datetime:
    """Let the deadline of the switch, with its grace, have ended just after the event, and return when."""
    over = event.received_at.astimezone(UTC) + timedelta(milliseconds=1)
    minute = over.replace(second=0, microsecond=0)
    times = {"by": f"{minute:%H:%M}", "since": f"{minute:%H:%M}", "grace": f"{(over - minute).total_seconds():.6f}s"}
    SwitchTimer.objects.update(since=over - 2 * HOUR)
    change_source(source, {"settings": {**source.settings, **times}}, by="test")
    arm_switches(Rules())
    return over


def test_other_listed_keys_leave_those_that_stay_as_they_were(a_minute_ago: str) -> None:
    source = make_deadline(a_minute_ago, key="event.data.branch", keys="main, old")
    seen = make_event(type="ci.passed", data={"branch": "main"})
    work()

    change_source(source, {"settings": {**source.settings, "keys": "main, new"}}, by="test")
    arm_switches(Rules())

    assert set(SwitchTimer.objects.values_list("key", flat=True)) == {"main", "new"}
    assert timer("ci", "main").seen_id == seen.pk


def test_another_time_of_day_moves_what_is_due(a_minute_ago: str) -> None:
    source = make_deadline(a_minute_ago)
    tomorrow = f"{database_now().astimezone(UTC) - 2 * timedelta(minutes=90):%H:%M}"

    change_source(source, {"settings": {**source.settings, "by": tomorrow}}, by="test")
    work()

    assert episodes("ci") == []
    assert f"{timer('ci').due_at:%H:%M}" == tomorrow


def test_a_switch_that_was_paused_over_a_deadline_expects_the_next_one(a_minute_ago: str) -> None:
    source = make_deadline(a_minute_ago, key="event.data.branch", keys="main")
    change_source(source, {"enabled": False}, by="test")
    work()
    assert episodes("ci") == []

    change_source(source, {"enabled": True}, by="test")
    work()

    assert episodes("ci") == []
    assert timer("ci", "main").due_at > database_now()  # type: ignore[operator]


def test_an_open_key_survives_a_pause_and_closes_when_its_event_comes(a_minute_ago: str) -> None:
    source = make_deadline(a_minute_ago, key="event.data.branch", keys="main")
    work()
    change_source(source, {"enabled": False}, by="test")
    SwitchTimer.objects.update(look_at=database_now())
    work()
    change_source(source, {"enabled": True}, by="test")
    work()

    make_event(type="ci.passed", data={"branch": "main"})
    work()

    assert episodes("ci") == [("absence.opened", "main"), ("absence.closed", "main")]


def test_a_key_whose_timer_was_erased_is_expected_again(a_minute_ago: str) -> None:
    make_deadline(a_minute_ago, key="event.data.branch", keys="main")
    SwitchTimer.objects.all().delete()

    arm_switches(Rules())

    assert timer("ci", "main").state == "waiting"


def test_a_silence_that_becomes_a_deadline_begins_from_zero(a_minute_ago: str) -> None:
    source = make_switch("ci", types="ci.passed")
    make_event(type="ci.passed")
    work()

    change_source(source, {"settings": {**source.settings, "by": a_minute_ago}}, by="test")
    arm_switches(Rules())

    assert timer("ci").seen_at is None and f"{timer('ci').due_at:%H:%M}" == a_minute_ago


def test_keys_without_a_key_between_their_commas_are_refused_as_no_event_could_come_in_time() -> None:
    settings = {"types": "ci.passed", "by": "15:00", "key": "event.data.branch", "keys": " , "}

    with pytest.raises(InvalidSettings, match="must be keys, such as main, release"):
        Absence().clean_settings(settings)
