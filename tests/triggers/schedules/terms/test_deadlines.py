"""Deadlines on the clock of a zone, also where it changes."""

from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from triggers.exceptions import RuleError
from triggers.schedules.clock import instant_of
from triggers.schedules.terms.deadlines import Deadlines

VIENNA = ZoneInfo("Europe/Vienna")
# Clocks that change by an hour, by half an hour, at midnight, and by a whole day.
ZONES = ("UTC", "Europe/Vienna", "Australia/Lord_Howe", "America/Sao_Paulo", "Pacific/Apia")
DAY = timedelta(days=1)
TIMES = some.builds(time, some.integers(0, 23), some.sampled_from([0, 15, 30, 59]))
DEADLINES = some.builds(
    lambda by, since, days, zone: Deadlines(by=by, since=since, days=tuple(sorted(days)), zone=ZoneInfo(zone)),
    TIMES,
    TIMES,
    some.sets(some.integers(0, 6), min_size=1),
    some.sampled_from(ZONES),
)
INSTANTS = some.one_of(
    some.datetimes(datetime(2011, 12, 20), datetime(2012, 1, 10)),  # Apia skips the 30th of December
    some.datetimes(datetime(2018, 10, 25), datetime(2018, 11, 15)),  # São Paulo skips midnight
    some.datetimes(datetime(2026, 3, 20), datetime(2026, 4, 10)),
    some.datetimes(datetime(2026, 10, 1), datetime(2026, 11, 10)),
).map(lambda at: at.replace(tzinfo=UTC))


def vienna(day: int, hour: int, minute: int = 0, *, month: int = 3, fold: int = 0) -> datetime:
    return datetime(2026, month, day, hour, minute, fold=fold, tzinfo=VIENNA).astimezone(UTC)


def at(by: str, since: str = "", days: str = "") -> Deadlines:
    return Deadlines.parse(by, since, days, "Europe/Vienna")


def test_a_deadline_has_the_time_since_which_an_event_counts() -> None:
    assert at("3 pm", "noon").ending_after(vienna(3, 9)) == (vienna(3, 12), vienna(3, 15))
    assert at("15:00").ending_after(vienna(3, 9)) == (vienna(3, 0), vienna(3, 15))
    assert at("08:00", "20:00").ending_after(vienna(3, 9)) == (vienna(3, 20), vienna(4, 8))
    assert at("08:00", "08:00").ending_after(vienna(3, 8)) == (vienna(3, 8), vienna(4, 8))


def test_a_deadline_belongs_to_the_day_on_which_it_ends() -> None:
    monday = at("08:00", "20:00", "mon-fri").ending_after(vienna(6, 8))  # a Friday

    assert monday == (vienna(8, 20), vienna(9, 8))


def test_an_event_at_the_beginning_counts_and_one_before_it_is_too_early() -> None:
    noon = at("15:00", "12:00")

    assert noon.beginning_after(vienna(3, 11, 59))[1] == vienna(3, 15)
    assert noon.beginning_after(vienna(3, 12))[1] == vienna(4, 15)


@pytest.mark.parametrize(
    ("by", "since", "expected"),
    [
        ("02:30", "01:00", (vienna(29, 1), vienna(29, 3))),  # the clock shows no 02:30: the end of the gap
        ("04:00", "02:30", (vienna(29, 3), vienna(29, 4))),
        ("02:30", "02:00", (vienna(29, 1, 30), vienna(29, 3))),  # the gap swallows it: it is as long as on other days
    ],
)
def test_in_the_night_of_the_spring_an_event_has_time_to_come(by: str, since: str, expected: object) -> None:
    assert at(by, since).ending_after(vienna(28, 12)) == expected


@pytest.mark.parametrize(
    ("by", "since", "length"),
    [
        ("02:30", "01:30", timedelta(hours=1)),
        ("03:00", "02:30", timedelta(hours=1.5)),
        ("03:00", "", timedelta(hours=4)),
    ],
)
def test_in_the_night_of_the_autumn_the_first_showing_counts_and_each_deadline_is_one(
    by: str, since: str, length: timedelta
) -> None:
    begin, end = at(by, since).ending_after(vienna(24, 12, month=10))

    assert end - begin == length
    assert at(by, since).ending_after(end)[1] > end + timedelta(hours=23)


@settings(max_examples=30)
@given(DEADLINES, INSTANTS)
def test_each_day_has_one_deadline_in_order_and_none_is_left_out(deadlines: Deadlines, instant: datetime) -> None:
    local = instant.astimezone(deadlines.zone).date()
    days = [local + number * DAY for number in range(-10, 11)]
    ends = sorted(
        {instant_of(datetime.combine(day, deadlines.by), deadlines.zone) for day in days if is_on(deadlines, day)}
    )

    begin, end = deadlines.ending_after(instant)
    assert end == next(one for one in ends if one > instant)
    assert begin < end
    assert deadlines.ended_by(instant)[1] == [one for one in ends if one <= instant][-1]
    assert deadlines.ended_by(end) == (begin, end)
    assert deadlines.count(end, end) == 1


@settings(max_examples=30)
@given(DEADLINES, INSTANTS)
def test_an_event_is_too_early_for_the_next_deadline_or_counts_for_all_before_it(
    deadlines: Deadlines, instant: datetime
) -> None:
    begin, end = deadlines.beginning_after(instant)

    assert begin > instant
    upcoming = deadlines.ending_after(instant)
    while upcoming[1] < end:
        assert upcoming[0] <= instant
        upcoming = deadlines.ending_after(upcoming[1])
    assert upcoming == (begin, end)


@settings(max_examples=25)
@given(some.text(max_size=20), some.sampled_from(["by", "since", "days"]))
def test_any_text_is_read_or_refused_with_the_name_of_its_field(text: str, field: str) -> None:
    given_texts = {"by": "15:00", "since": "12:00", "days": "mon-fri", "tz": "UTC", field: text}
    try:
        Deadlines.parse(*given_texts.values())
    except RuleError as error:
        assert error.field == field


@pytest.mark.parametrize("text", ["25:00", "13pm", "tomorrow", "15", "", "١٥:٠٠", "3 pm and 4 pm"])
def test_what_is_no_time_of_day_is_refused(text: str) -> None:
    with pytest.raises(RuleError, match="no time of day"):
        at(text)


def is_on(deadlines: Deadlines, day: date) -> bool:
    return day.weekday() in deadlines.days
