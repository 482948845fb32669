from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache
from itertools import cycle, islice, pairwise, takewhile
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from celery.schedules import crontab
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from triggers.exceptions import RuleError
from triggers.schedules.rules.crontab import Cron
from triggers.schedules.rules.interval import Interval
from triggers.schedules.rules.once import Clocked
from triggers.schedules.rules.rule import count_fires, fire_after, latest_fire, next_fires

MINUTE = timedelta(minutes=1)
ZONES = [
    "Africa/Casablanca",  # its summer time pauses for Ramadan
    "Africa/El_Aaiun",
    "America/New_York",
    "America/Sao_Paulo",  # had summer time, from midnight on, until 2019
    "America/St_Johns",
    "Antarctica/Troll",  # two hours at once
    "Asia/Kathmandu",
    "Asia/Kolkata",
    "Australia/Lord_Howe",  # half an hour
    "Europe/Dublin",  # its winter time is the exception
    "Europe/Vienna",
    "Pacific/Apia",  # left out a whole day in 2011
    "Pacific/Chatham",
    "UTC",
]


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def fires(cron: str, tz: str, after: str, count: int) -> list[str]:
    found = islice(Cron.parse(cron, tz).fires(utc(after)), count)
    return [f"{fire:%Y-%m-%d %H:%M}" for fire in found]


# Brute force: a wall clock that is watched minute by minute and never read backwards


def watched(cron: Cron, after: datetime, until: datetime) -> Iterator[datetime]:
    """Every minute at which the clock on the wall shows a time that the crontab names. Where it names hours, as opposed to
    every hour or every n-th: shows it for the first time, or has just jumped over it."""
    instant = (after - timedelta(hours=4)).replace(second=0, microsecond=0)  # no clock goes further back
    furthest = instant.astimezone(cron.zone).replace(tzinfo=None)
    follows_elapsed_time = cron.hour.startswith("*") and "," not in cron.hour
    while (instant := instant + MINUTE) <= until:
        shown = instant.astimezone(cron.zone).replace(tzinfo=None)
        is_named = follows_elapsed_time and names(cron, shown)
        while furthest < shown:
            furthest += MINUTE
            is_named = is_named or (not follows_elapsed_time and names(cron, furthest))
        if is_named and instant > after:
            yield instant


def names(cron: Cron, local: datetime) -> bool:
    return (
        local.minute in cron.minutes
        and local.hour in cron.hours
        and local.day in cron.days
        and local.month in cron.months
        and local.isoweekday() % 7 in cron.weekdays
    )


@cache
def clock_changes(zone: str) -> list[datetime]:
    """The days of 2011 to 2031 by whose beginning the zone's offset has changed."""
    days = [datetime(2011, 1, 1, tzinfo=UTC) + timedelta(days=n) for n in range(20 * 366)]
    offsets = [day.astimezone(ZoneInfo(zone)).utcoffset() for day in days]
    return [day for day, before, now in zip(days[1:], offsets, offsets[1:], strict=False) if before != now]


def lists(low: int, high: int, size: int) -> st.SearchStrategy[str]:
    values = st.lists(st.integers(low, high), min_size=1, max_size=size, unique=True)
    return st.just("*") | values.map(lambda numbers: ",".join(map(str, numbers)))


@st.composite
def crons(draw: st.DrawFn) -> Cron:
    return Cron(
        minute=draw(lists(0, 59, 4) | st.sampled_from(["*/7", "*/15", "50-59/3"])),
        hour=draw(lists(0, 4, 3) | lists(0, 23, 3) | st.sampled_from(["*/2", "*/23", "22-3", "0-23", "*,1"])),
        day_of_month=draw(st.just("*") | lists(25, 28, 3)),
        month=draw(st.just("*") | st.sampled_from(["3,10", "*/2"])),
        day_of_week=draw(st.just("*") | st.sampled_from(["sun", "fri-mon", "1-5"])),
        zone=ZoneInfo(draw(st.sampled_from(ZONES))),
    )


@given(cron=crons(), data=st.data())
def test_fires_are_those_of_a_watched_clock_around_clock_changes(cron: Cron, data: st.DataObject) -> None:
    changes = clock_changes(str(cron.zone)) or [utc("2026-03-29"), utc("2027-12-31")]
    change = data.draw(st.sampled_from(changes))
    after = change - timedelta(seconds=data.draw(st.integers(0, 48 * 3600)))
    until = after + timedelta(hours=56)

    found = list(takewhile(lambda fire: fire <= until, cron.fires(after)))

    assert found == list(watched(cron, after, until))


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(cron=crons(), data=st.data())
def test_newest_counted_and_nth_fires_are_those_of_a_watched_clock_around_clock_changes(
    cron: Cron, data: st.DataObject
) -> None:
    change = data.draw(st.sampled_from(clock_changes(str(cron.zone)) or [utc("2026-03-29")]))
    after = change - timedelta(seconds=data.draw(st.integers(0, 72 * 3600)))
    until = after + timedelta(seconds=data.draw(st.integers(0, 80 * 3600)))
    expected = list(watched(cron, after, until))
    assume(expected)
    first = expected[data.draw(st.integers(0, len(expected) - 1))]
    expected = [fire for fire in expected if fire >= first]

    assert cron.newest(until) == latest_fire(cron, first, until) == expected[-1]
    assert count_fires(cron, first, expected[-1]) == len(expected)
    assert fire_after(cron, first, len(expected) - 1) == expected[-1]


@pytest.mark.parametrize("zone", ["America/St_Johns", "America/Sao_Paulo", "Antarctica/Troll", "Australia/Lord_Howe"])
@pytest.mark.parametrize("minute", ["0", "*/30"])
def test_years_of_wildcard_hours_are_counted_and_come_by_elapsed_time(zone: str, minute: str) -> None:
    """St John's put its clock back at 00:01 until 2011: the second pass belongs to the day before."""
    cron = Cron.parse(f"{minute} * * * *", zone)
    start, end = utc("2010-06-01"), utc("2012-06-01")
    every = list(takewhile(lambda fire: fire <= end, cron.fires(start)))

    assert every == sorted(set(every))
    assert count_fires(cron, every[0], every[-1]) == len(every)
    assert fire_after(cron, every[0], len(every) - 1) == every[-1]
    if zone != "Australia/Lord_Howe" or minute == "*/30":  # its clock goes back by half an hour
        assert {later - one for one, later in pairwise(every)} == {timedelta(hours=1) / len(cron.minutes)}


@pytest.mark.parametrize("zone", ZONES)
def test_every_change_of_a_clock_in_twenty_years_is_as_a_watched_clock_shows_it(zone: str) -> None:
    texts = cycle(["30 0-3 * * *", "0 0 * * *", "*/20 * * * *", "15,45 2 * * *", "0 */2 * * sun"])
    for change, text in zip(clock_changes(zone), texts, strict=False):
        cron = Cron.parse(text, zone)
        after, until = change - timedelta(hours=26), change + timedelta(hours=3)

        assert list(takewhile(lambda fire: fire <= until, cron.fires(after))) == list(watched(cron, after, until))  # noqa: B023


@settings(max_examples=60)
@given(
    dom=st.sampled_from(["*", "1", "28", "29", "30", "31", "29-31", "31,1"]),
    dow=st.sampled_from(["*", "mon", "sat,sun", "1-5"]),
    month=st.sampled_from(["*", "2", "1,3,12", "*/5"]),
    hour=st.sampled_from(["0", "23", "12", "*/6"]),
    zone=st.sampled_from(ZONES),
    day=st.sampled_from(
        [
            date(year, month, day)
            for year in (2023, 2024, 2027, 2028, 2100)
            for month, day in [(2, 28), (3, 1), (4, 30), (12, 31)]
        ]
    ),
)
def test_ends_of_months_and_years_are_as_a_watched_clock_shows_them(
    dom: str, dow: str, month: str, hour: str, zone: str, day: date
) -> None:
    try:
        cron = Cron(minute="0,59", hour=hour, day_of_month=dom, month=month, day_of_week=dow, zone=ZoneInfo(zone))
    except RuleError:
        assert month == "2" and dom in ("30", "31")
        return
    after = datetime(day.year, day.month, day.day, tzinfo=UTC) - timedelta(hours=14)
    until = after + timedelta(hours=52)

    assert list(takewhile(lambda fire: fire <= until, cron.fires(after))) == list(watched(cron, after, until))


@given(
    dom=lists(1, 31, 5) | st.sampled_from(["29", "30", "31", "29-31"]),
    month=lists(1, 12, 4) | st.just("2"),
    dow=lists(0, 6, 3),
    start=st.dates(date(1999, 1, 1), date(2096, 12, 31)),
)
def test_dates_are_those_of_a_day_by_day_calendar(dom: str, month: str, dow: str, start: date) -> None:
    try:
        cron = Cron(minute="30", hour="12", day_of_month=dom, month=month, day_of_week=dow, zone=ZoneInfo("UTC"))
    except RuleError:
        assert month == "2" or "31" in dom or "30" in dom  # such as the 31st of June
        return
    after = datetime(start.year, start.month, start.day, tzinfo=UTC)
    days = (after + timedelta(days=n, hours=12, minutes=30) for n in range(9 * 366))

    expected = [day for day in days if names(cron, day.replace(tzinfo=None))]

    assert list(takewhile(lambda fire: fire <= after + timedelta(days=9 * 366), cron.fires(after))) == expected


@given(minute=lists(0, 59, 5), hour=st.sampled_from(["*", "*/5", "8-17/3", "22-4", "22-4/2", "7"]), data=st.data())
def test_fields_mean_what_they_mean_to_celery(minute: str, hour: str, data: st.DataObject) -> None:
    dow = data.draw(st.sampled_from(["*", "mon-fri", "fri-mon", "sun,3", "*/2", "monday"]))
    dom = data.draw(st.sampled_from(["*", "1-7", "*/3", "2-30/2", "31"]))
    month = data.draw(st.sampled_from(["*", "jan", "2-12/2", "nov-feb", "*/3", "12"]))

    ours = Cron(minute=minute, hour=hour, day_of_month=dom, month=month, day_of_week=dow, zone=ZoneInfo("UTC"))

    theirs: Any = crontab(minute, hour, dow, dom, month)
    assert set(ours.minutes) == theirs.minute
    assert set(ours.hours) == theirs.hour
    assert set(ours.days) == theirs.day_of_month
    assert set(ours.months) == theirs.month_of_year
    assert set(ours.weekdays) == theirs.day_of_week


# In words


def test_time_that_does_not_exist_fires_at_the_next_valid_instant() -> None:
    assert fires("30 2 * * *", "Europe/Vienna", "2026-03-28T12:00", 2) == ["2026-03-29 01:00", "2026-03-30 00:30"]


def test_wildcard_hours_go_on_through_a_repeated_hour() -> None:
    assert fires("*/30 * * * *", "Europe/Vienna", "2026-10-24T23:30", 5) == [
        "2026-10-25 00:00",  # 02:00
        "2026-10-25 00:30",
        "2026-10-25 01:00",  # 02:00 again
        "2026-10-25 01:30",
        "2026-10-25 02:00",  # 03:00
    ]
    assert fires("0 */2 * * *", "Europe/Vienna", "2026-10-24T21:00", 4) == [
        "2026-10-24 22:00",
        "2026-10-25 00:00",
        "2026-10-25 01:00",
        "2026-10-25 03:00",
    ]


def test_wildcard_hours_make_nothing_of_a_gap() -> None:
    assert fires("30 * * * *", "Europe/Vienna", "2026-03-29T00:00", 2) == ["2026-03-29 00:30", "2026-03-29 01:30"]
    assert fires("0 */2 * * *", "Europe/Vienna", "2026-03-28T22:30", 2) == ["2026-03-28 23:00", "2026-03-29 02:00"]


@pytest.mark.parametrize(
    ("hour", "times"), [("*", 2), ("*/1", 2), ("*/2", 2), ("0-23", 1), ("0-23/2", 1), ("*,2", 1), ("2", 1)]
)
def test_only_a_star_with_or_without_a_step_is_a_wildcard(hour: str, times: int) -> None:
    cron = Cron.parse(f"30 {hour} * * *", "Europe/Vienna")

    found = takewhile(lambda fire: fire < utc("2026-10-25T02:00"), cron.fires(utc("2026-10-25T00:00")))

    assert len(list(found)) == times
    assert cron.is_wildcard == (times == 2)


def test_time_that_happens_twice_fires_the_first_time() -> None:
    assert fires("30 2 * * *", "Europe/Vienna", "2026-10-24T12:00", 2) == ["2026-10-25 00:30", "2026-10-26 01:30"]


def test_the_day_samoa_left_out_fires_at_its_end() -> None:
    assert fires("0 9 30 12 *", "Pacific/Apia", "2011-12-01T00:00", 2) == ["2011-12-30 10:00", "2012-12-29 19:00"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("0 9 * *", "4 fields, not 5"),
        ("60 9 * * *", "minute 60 is not between 0 and 59"),
        ("0 24 * * *", "hour 24 is not between"),
        ("0 9 * * funday", "'funday' is not a number or a name such as sun"),
        ("0 9 * * mon-", "is not a value, a range or a step"),
        ("0 9 , * *", "is not a value"),
        ("5/15 * * * *", "a step needs a range"),
        ("*/0 * * * *", "must not be 0"),
        ("*/90 * * * *", "use an interval"),
        ("1-5/2/3 * * * *", "is not a value"),
        ("0 9 31 2,4 *", "never fires"),
        ("0 9 13 * fri", "cron would fire on either, Celery only on both"),
        ("@daily", "1 fields, not 5"),
        ("0 9 * * ²", "is not a number"),
    ],
)
def test_nonsense_is_refused_with_what_is_wrong(text: str, complaint: str) -> None:
    with pytest.raises(RuleError, match=complaint):
        Cron.parse(text)


@pytest.mark.parametrize("zone", ["", "Europe/Wien", "../etc/passwd", "Mars", "\0"])
def test_unknown_zone_is_refused(zone: str) -> None:
    with pytest.raises(RuleError, match="there is no zone"):
        Cron.parse("0 9 * * *", zone)


def test_sunday_is_0_and_7() -> None:
    assert Cron.parse("0 9 * * 5-7").weekdays == Cron.parse("0 9 * * fri-sun").weekdays == [0, 5, 6]
    assert Cron.parse("0 9 * * 7").day_of_week == "0"


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (Cron.parse("0 9 * * mon-fri", "Europe/Vienna"), "At 09:00, Monday through Friday (Europe/Vienna)"),
        (Interval.parse("1h30m"), "every 1 hour 30 minutes"),
        (Interval.parse(0.5), "every 0.5 seconds"),
        (Interval.parse("14d"), "every 14 days"),
        (Clocked.parse("2026-12-01T09:00+01:00"), "once, at 2026-12-01 08:00:00 UTC"),
    ],
)
def test_every_rule_is_described_in_words(rule: Any, words: str) -> None:
    assert rule.words == words


# Intervals and instants


@given(
    every=st.timedeltas(timedelta(milliseconds=100), timedelta(days=400)),
    gap=st.timedeltas(timedelta(0), timedelta(days=4000)),
)
def test_interval_keeps_to_its_anchor(every: timedelta, gap: timedelta) -> None:
    anchor = utc("2026-01-01")
    after = anchor + gap

    first, second = islice(Interval(every=every, anchor=anchor).fires(after), 2)

    assert after < first <= after + every
    assert (first - anchor) % every == timedelta(0)
    assert second - first == every


def test_interval_does_not_fire_before_its_anchor() -> None:
    rule = Interval(every=timedelta(hours=1), anchor=utc("2026-01-01"))

    assert next(rule.fires(utc("2025-06-01"))) == utc("2026-01-01")


@pytest.mark.parametrize("every", ["0s", "50ms", 0.01, -5, "200000d", 10**12, "soon", float("nan")])
def test_absurd_interval_is_refused(every: Any) -> None:
    with pytest.raises(RuleError):
        Interval.parse(every)


def test_a_clocked_rule_fires_once() -> None:
    rule = Clocked.parse("2026-12-01T09:00+01:00")

    assert list(rule.fires(utc("2026-01-01"))) == [utc("2026-12-01T08:00")]
    assert list(rule.fires(utc("2026-12-01T08:00"))) == []


@pytest.mark.parametrize("instant", ["tomorrow", "2026-12-01T09:00", ""])
def test_instant_without_offset_or_sense_is_refused(instant: str) -> None:
    with pytest.raises(RuleError, match="2026-12-01T09:00\\+01:00"):
        Clocked.parse(instant)


def test_start_is_included_and_end_is_not() -> None:
    rule = Cron.parse("0 9 * * *")

    found = list(next_fires(rule, utc("2026-01-01"), start=utc("2026-01-03T09:00"), end=utc("2026-01-05T09:00")))

    assert found == [utc("2026-01-03T09:00"), utc("2026-01-04T09:00")]
