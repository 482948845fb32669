"""Which nominal times fire, and when."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice, pairwise, repeat, takewhile
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from triggers.schedules.accounting import Stretch, account, together
from triggers.schedules.clock import EVER
from triggers.schedules.excluded_days import ExcludedDays
from triggers.schedules.plan import Plan
from triggers.schedules.rules.crontab import Cron
from triggers.schedules.rules.interval import Interval
from triggers.schedules.rules.once import Clocked
from triggers.schedules.rules.rule import Rule
from triggers.schedules.terms.active_hours import ActiveHours

VIENNA = ZoneInfo("Europe/Vienna")
MONDAY = datetime(2050, 3, 7, tzinfo=UTC)
TENTH = timedelta(milliseconds=100)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
MISSED = [(EVER, "missed")]


def plan(rule: Rule | None = None, *, hours: str = "", days: str = "", **fields: Any) -> Plan:
    return Plan(
        rule=rule or Interval(every=HOUR, anchor=MONDAY),
        hours=ActiveHours.parse(hours) if hours else None,
        days=[("holidays", ExcludedDays.parse(days))] if days else [],
        **fields,
    )


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def count_calls(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> Callable[[], int]:
    """How often a method has been called since."""
    calls: list[None] = []
    method = getattr(owner, name)

    def counted(*args: Any) -> Any:
        calls.append(None)
        return method(*args)

    monkeypatch.setattr(owner, name, counted)
    return lambda: len(calls)


# What is closed


def test_excluded_day_lasts_from_midnight_to_midnight_in_its_zone() -> None:
    office = plan(days="2050-03-08 Founders' day", zone=VIENNA)
    hours = [
        fire for fire in islice(office.fires(MONDAY), 60) if at("2050-03-07T20:00") <= fire < at("2050-03-09T02:00")
    ]
    assert hours == [at("2050-03-07T20:00") + k * HOUR for k in range(3)] + [
        at("2050-03-08T23:00") + k * HOUR for k in range(3)
    ]


def test_rule_that_only_names_closed_times_never_fires() -> None:
    assert list(plan(Cron.parse("0 3 * * *"), hours="09:00-17:00").fires(MONDAY)) == []


def test_a_fast_schedule_is_not_walked_through_its_nights() -> None:
    every_second = plan(Interval(every=timedelta(seconds=1), anchor=MONDAY), hours="09:00-09:01")
    year = list(islice(every_second.fires(MONDAY), 60 * 50))
    assert year[-1] == at("2050-04-25T09:00:59")


def test_second_showing_of_an_hour_closes_where_it_ends() -> None:
    """03:00 summer time is 02:00 again on 30 October 2050; 02:15 to 02:45 is active twice."""
    night = plan(Interval(every=10 * MINUTE, anchor=MONDAY), hours="02:15-02:45", zone=VIENNA)
    fires = list(islice(night.fires(at("2050-10-29T22:00")), 6))
    assert fires == [at(f"2050-10-30T0{hour}:{minute}") for hour in (0, 1) for minute in (20, 30, 40)]


# Due times


@given(
    every=st.integers(1, 7200),
    jitter=st.integers(0, 10_000),
    spread=st.integers(0, 10_000),
    seed=st.text(),
)
def test_fires_keep_their_order_however_they_are_moved(every: int, jitter: int, spread: int, seed: str) -> None:
    moved = plan(
        Interval(every=timedelta(seconds=every), anchor=MONDAY),
        jitter=timedelta(seconds=jitter),
        spread=timedelta(seconds=spread),
        seed=seed,
    )
    nominals = list(islice(moved.fires(MONDAY), 20))
    for nominal, following in pairwise(nominals):
        assert nominal <= moved.due(nominal) < following
        assert moved.due(nominal) - nominal <= timedelta(seconds=jitter + spread)


def test_spread_is_the_same_every_time_and_another_for_each_schedule() -> None:
    offsets = [
        {spread.due(nominal) - nominal for nominal in islice(spread.fires(MONDAY), 10)}
        for spread in (plan(spread=30 * MINUTE, seed=str(number)) for number in range(50))
    ]
    assert all(len(each) == 1 for each in offsets)
    assert len(set.union(*offsets)) == 50


def test_jitter_is_another_every_time_and_the_same_to_everybody() -> None:
    [mine, yours] = [
        [jittered.due(nominal) for nominal in islice(jittered.fires(MONDAY), 10)]
        for jittered in (plan(jitter=30 * MINUTE, seed="7") for _ in range(2))
    ]
    assert mine == yours
    assert len({due - due.replace(minute=0, second=0, microsecond=0) for due in mine}) == 10


# Accounting


def accounted(
    some: Plan, after: datetime, until: datetime, fired: Sequence[datetime], missed: Sequence[tuple[datetime, str]]
) -> list[Stretch]:
    stretches, reached = account(some, after, until, fired, missed)
    assert reached == until
    return stretches


def stretch(reason: str, first: str, last: str, count: int | None, detail: str = "") -> Stretch:
    return Stretch(reason=reason, first=at(first), last=at(last), count=count, detail=detail)


def test_every_nominal_time_has_one_reason() -> None:
    office = plan(hours="09:00-12:00", days="2050-03-08 Founders' day")
    fired = [at("2050-03-07T10:00"), at("2050-03-09T09:00")]

    assert accounted(office, at("2050-03-07T07:30"), at("2050-03-09T09:00"), fired, MISSED) == [
        stretch("inactive", "2050-03-07T08:00", "2050-03-07T08:00", 1, "09:00-12:00"),
        stretch("missed", "2050-03-07T09:00", "2050-03-07T09:00", 1),
        stretch("missed", "2050-03-07T11:00", "2050-03-07T11:00", 1),
        stretch("inactive", "2050-03-07T12:00", "2050-03-07T23:00", 12, "09:00-12:00"),
        stretch("excluded", "2050-03-08T00:00", "2050-03-08T23:00", 24, "holidays: Founders' day"),
        stretch("inactive", "2050-03-09T00:00", "2050-03-09T08:00", 9, "09:00-12:00"),
    ]


def test_missed_times_have_a_reason_by_their_age() -> None:
    reasons = [(at("2050-03-07T03:00"), "window"), (at("2050-03-07T05:00"), "most"), (EVER, "missed")]

    assert accounted(plan(), MONDAY, at("2050-03-07T06:00"), [at("2050-03-07T05:00")], reasons) == [
        stretch("window", "2050-03-07T01:00", "2050-03-07T02:00", 2),
        stretch("most", "2050-03-07T03:00", "2050-03-07T04:00", 2),
        stretch("missed", "2050-03-07T06:00", "2050-03-07T06:00", 1),
    ]


def test_days_of_one_reason_are_one_stretch() -> None:
    weekly = plan(Cron.parse("0 3 * * *"), hours="09:00-17:00")
    assert accounted(weekly, MONDAY, MONDAY + 30 * DAY, [], MISSED) == [
        stretch("inactive", "2050-03-07T03:00", "2050-04-05T03:00", 30, "09:00-17:00")
    ]


def test_a_year_of_minutes_is_counted_and_what_postgresql_cannot_hold_is_not() -> None:
    [minutes] = accounted(plan(Cron.parse("* * * * *")), MONDAY, MONDAY + 365 * DAY, [], MISSED)
    assert (minutes.count, minutes.last) == (365 * 1440, MONDAY + 365 * DAY)

    tenths = plan(Interval(every=timedelta(milliseconds=100), anchor=MONDAY))
    [many] = together(tenths, MONDAY, MONDAY + 3000 * DAY, "paused")
    assert many.count is None


RULES = st.one_of(
    st.integers(1, 200).map(lambda minutes: Interval(every=minutes * MINUTE, anchor=MONDAY - DAY)),
    st.sampled_from(["*/7 * * * *", "30 */5 * * *", "0 9 * * mon-fri", "15 2 * * *"]).map(
        lambda text: Cron.parse(text, "Europe/Vienna")
    ),
    st.integers(0, 4000).map(lambda minutes: Clocked(at=MONDAY + minutes * MINUTE)),
)


@settings(max_examples=60)
@given(
    rule=RULES,
    hours=st.sampled_from(["", "09:00-17:00", "mon-fri 08:30-12:00, sat 22:00-02:00", "02:15-02:45"]),
    days=st.sampled_from(["", "2050-03-08 Founders' day", "2050-03-26..2050-03-28"]),
    begin=st.integers(0, 20 * 1440),
    length=st.integers(1, 2 * 1440),
    data=st.data(),
)
def test_account_is_that_of_looking_at_each_nominal_time(
    rule: Rule, hours: str, days: str, begin: int, length: int, data: st.DataObject
) -> None:
    some = plan(rule, hours=hours, days=days, zone=VIENNA)
    after, until = MONDAY + begin * MINUTE, MONDAY + (begin + length) * MINUTE
    raw = [nominal for nominal in islice(some.raw(after), 5000) if nominal <= until]
    opened = [nominal for nominal in raw if some.closed(nominal) is None]
    fired = sorted(data.draw(st.sets(st.sampled_from(opened)))) if opened else []

    stretches = accounted(some, after, until, fired, MISSED)

    reasons: dict[datetime, str] = {}
    for one in stretches:
        covered = [nominal for nominal in raw if one.first <= nominal <= one.last]
        assert len(covered) == one.count
        assert not set(covered) & reasons.keys()
        reasons |= dict.fromkeys(covered, one.reason)
    closures = {nominal: closure.reason for nominal in raw if (closure := some.closed(nominal))}
    assert reasons == closures | {nominal: "missed" for nominal in opened if nominal not in fired}


@settings(max_examples=40)
@given(
    rule=st.one_of(RULES, st.integers(1, 600).map(lambda tenths: Interval(every=tenths * TENTH, anchor=MONDAY - DAY))),
    hours=st.sampled_from(
        ["", "09:00-09:20", "mon-fri 08:30-12:00, sat 22:00-02:00", "02:15-02:45", "tue 23:50-00:10"]
    ),
    days=st.sampled_from(["", "2050-03-08 Founders' day", "2050-03-26..2050-03-28", "2050-10-30"]),
    zone=st.sampled_from([VIENNA, ZoneInfo("UTC"), ZoneInfo("Australia/Lord_Howe")]),
    begin=st.sampled_from([0, 18 * 1440, 236 * 1440]).flatmap(lambda day: st.integers(day, day + 3 * 1440)),
    length=st.integers(0, 4 * 1440),
    number=st.integers(1, 3000),
)
def test_the_newest_is_computed_as_it_would_be_listed(
    rule: Rule, hours: str, days: str, zone: ZoneInfo, begin: int, length: int, number: int
) -> None:
    some = plan(rule, hours=hours, days=days, zone=zone)
    after = MONDAY + begin * MINUTE
    until = after + min(length * MINUTE, 2000 * rule.every if isinstance(rule, Interval) else 4 * DAY)
    listed = list(takewhile(lambda fire: fire <= until, some.fires(after)))
    if not listed:
        return  # closed throughout

    assert some.newest(listed[0], until) == listed[-1]
    assert some.nth_newest(listed[0], until, number) == listed[-number:][0]


def test_the_newest_of_a_fast_schedule_is_found_without_listing_its_weekend(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten fires a second, on workdays from 9 to 17, from Thursday 10:00 to Sunday 04:00."""
    office = plan(Interval(every=TENTH, anchor=MONDAY), hours="mon-fri 09:00-17:00", zone=VIENNA)
    looked_at = count_calls(monkeypatch, Plan, "closed")

    assert office.newest(at("2050-03-10T09:00"), at("2050-03-13T03:00")) == at("2050-03-11T16:00") - TENTH
    assert office.nth_newest(at("2050-03-10T09:00"), at("2050-03-13T03:00"), 288_001) == at("2050-03-10T16:00") - TENTH
    assert looked_at() < 20


def test_a_long_range_is_accounted_for_in_pieces() -> None:
    """48 windows a day through a year: each piece has the requested length, and all of them are the whole."""
    windows = ", ".join(f"{hour:02}:{minute:02}-{hour:02}:{minute + 15:02}" for hour in range(24) for minute in (0, 30))
    busy = plan(Cron.parse("*/5 * * * *"), hours=windows)
    pieces: list[Stretch] = []
    after, until = MONDAY, MONDAY + 3 * DAY
    while after < until:
        steps = repeat(True, 9)
        piece, after = account(busy, after, until, [], MISSED, partial(next, steps, False))
        assert len(piece) <= 10
        pieces += piece
    whole, reached = account(busy, MONDAY, until, [], MISSED)
    assert (reached, after) == (until, until)
    assert pieces == whole
    assert sum(one.count or 0 for one in whole) == 3 * 288
