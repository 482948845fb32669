from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triggers.exceptions import RuleError
from triggers.schedules.terms.active_hours import ActiveHours

MONDAY = datetime(2026, 11, 16)
WEEK = "Monday to Friday 09:00-17:00 and Saturday 10:00-12:00"


def at(day: int, hour: int = 0, minute: int = 0) -> datetime:
    """A naive local time of the week that begins on Monday, 2026-11-16; day 0 is that Monday."""
    return MONDAY + timedelta(days=day, hours=hour, minutes=minute)


@pytest.mark.parametrize(
    ("text", "local", "is_open", "change"),
    [
        ("mon-fri 09:00-17:00", at(0, 9), True, at(0, 17)),
        ("mon-fri 09:00-17:00", at(0, 8, 59), False, at(0, 9)),
        ("mon-fri 09:00-17:00", at(0, 17), False, at(1, 9)),
        ("mon-fri 09:00-17:00", at(4, 17), False, at(7, 9)),
        ("mon-fri 09:00-17:00, sat 10:00-12:00", at(4, 17), False, at(5, 10)),
        ("09:00-17:00", at(6, 16, 59), True, at(6, 17)),
        ("22:00-06:00", at(2, 3), True, at(2, 6)),
        ("fri 22:00-06:00", at(5, 5, 59), True, at(5, 6)),
        ("fri 22:00-06:00", at(4, 5), False, at(4, 22)),
        ("sun 22:00-06:00", at(0, 5), True, at(0, 6)),
        ("sun 22:00-06:00", at(6, 23), True, at(7, 6)),
        ("09:00-12:00, 12:00-17:00", at(3, 10), True, at(3, 17)),
        ("mon 20:00-24:00, tue 00:00-04:00", at(0, 21), True, at(1, 4)),
        ("00:00-24:00", at(3, 10), True, datetime.max),
        ("sat-sun 00:00-24:00", at(5, 1), True, at(7)),
        ("sun-mon 00:00-24:00", at(6, 1), True, at(8)),
        ("", at(3), True, datetime.max),
    ],
)
def test_period_is_open_or_closed_until_its_next_edge(
    text: str, local: datetime, is_open: bool, change: datetime
) -> None:
    assert ActiveHours.parse(text).period(local) == (is_open, change)


def test_a_microsecond_before_an_edge_belongs_to_the_earlier_period() -> None:
    hours = ActiveHours.parse("09:00-17:00")
    tick = timedelta(microseconds=1)

    assert [hours.period(at(0, 9) - tick)[0], hours.period(at(0, 17) - tick)[0]] == [False, True]


@pytest.mark.parametrize(
    ("text", "canonical", "words"),
    [
        ("Mon-Fri 9:00-17:00,SAT 10:00 - 12:00", "mon-fri 09:00-17:00, sat 10:00-12:00", WEEK),
        ("weekdays 09:00-17:00", "mon-fri 09:00-17:00", "Monday to Friday 09:00-17:00"),
        ("mon, wednesday ,fri 08:00-09:00", "mon,wed,fri 08:00-09:00", "Monday, Wednesday and Friday 08:00-09:00"),
        ("fri-mon 22:00-00:00", "mon,fri-sun 22:00-24:00", "Monday and Friday to Sunday 22:00-24:00"),
        ("every day 22:00-06:00", "22:00-06:00", "every day 22:00-06:00"),
        ("", "", "always"),
    ],
)  # fmt: skip
def test_text_is_written_one_way_and_in_words(text: str, canonical: str, words: str) -> None:
    hours = ActiveHours.parse(text)

    assert (hours.text, hours.words) == (canonical, words)
    assert ActiveHours.parse(canonical) == hours


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nine to five", "'nine to five' is no day of the week"),
        ("mo 09:00-17:00", "'mo' is no day of the week"),
        ("mon-fri", "has no times; write such as"),
        ("mon-fri 09:00-12:00, 13:00-17:00", "has no days; write such as mon-fri 13:00-17:00"),
        ("09:00-25:00", "24:00 at the latest"),
        ("24:00-02:00", "24:00 at the latest"),
        ("09:60-10:00", "24:00 at the latest"),
        ("09:00-09:00", "for a whole day write 00:00-24:00"),
    ],
)
def test_text_that_makes_no_sense_is_refused_with_what_to_write(text: str, message: str) -> None:
    with pytest.raises(RuleError, match=message) as refused:
        ActiveHours.parse(text)

    assert refused.value.field == "active_hours"


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.integers(0, 23), st.integers(1, 24)), min_size=1, max_size=4),
    st.integers(0, 7 * 24 * 4),
)  # fmt: skip
def test_every_instant_of_the_week_is_open_or_closed_by_its_windows(
    parts: list[tuple[int, int, int, int]], quarter: int
) -> None:
    names = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
    parts = [part for part in parts if part[2] != part[3]] or [(0, 0, 9, 17)]
    text = ", ".join(f"{names[first]}-{names[last]} {begin}:00-{end}:00" for first, last, begin, end in parts)
    hours = ActiveHours.parse(text)

    def is_open(local: datetime) -> bool:
        return any(
            (begin <= local.hour and (local.hour < end or end < begin) and in_days(local, first, last))
            or (end < begin and local.hour < end and in_days(local - timedelta(days=1), first, last))
            for first, last, begin, end in parts
        )

    def in_days(local: datetime, first: int, last: int) -> bool:
        return (local.weekday() - first) % 7 <= (last - first) % 7

    local = MONDAY + timedelta(minutes=15 * quarter)
    found, change = hours.period(local)
    later = (local + timedelta(minutes=15 * step) for step in range(1, 7 * 24 * 4 + 1))
    expected = next((moment for moment in later if is_open(moment) != found), datetime.max)
    assert (found, change) == (is_open(local), expected)
