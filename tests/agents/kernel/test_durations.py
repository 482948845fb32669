from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.kernel.durations import UNITS, in_words, parse_duration, text_of_duration


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("90s", timedelta(seconds=90)),
        ("1h30m", timedelta(minutes=90)),
        ("1h 30m", timedelta(minutes=90)),
        ("0.5s", timedelta(milliseconds=500)),
        ("3d", timedelta(days=3)),
        ("2w", timedelta(weeks=2)),
        ("1 hour 5 minutes", timedelta(minutes=65)),
        ("15ms", timedelta(milliseconds=15)),
        (5, timedelta(seconds=5)),
        (2.5, timedelta(seconds=2.5)),
        (timedelta(days=1), timedelta(days=1)),
    ],
)
def test_a_duration_is_written_in_units_seconds_or_as_itself(
    written: str | float | timedelta, meant: timedelta
) -> None:
    assert parse_duration(written) == meant


@pytest.mark.parametrize("written", ["", "soon", "5", "5 months", "-5s", "1h and 30m", "1y", "s"])
def test_another_text_is_refused_with_an_example(written: str) -> None:
    with pytest.raises(ValueError, match="30m"):
        parse_duration(written)


@pytest.mark.parametrize("written", ["99999999999w", 1e30, float("inf")])
def test_a_duration_beyond_the_calendar_is_refused_in_words(written: str | float) -> None:
    with pytest.raises(ValueError, match="too long for the calendar"):
        parse_duration(written)


@given(st.integers(0, 10_000), st.sampled_from(sorted(UNITS)))
def test_every_unit_has_the_length_of_a_timedelta(number: int, unit: str) -> None:
    assert parse_duration(f"{number}{unit}") == timedelta(**{UNITS[unit]: number})


@pytest.mark.parametrize(
    ("delta", "words"),
    [
        (timedelta(milliseconds=340), "340 ms"),
        (timedelta(seconds=42), "42 s"),
        (timedelta(minutes=3), "3 min"),
        (timedelta(hours=2, minutes=5, seconds=9), "2 h 5 min"),
        (timedelta(days=1, minutes=5), "1 d"),
        (timedelta(seconds=-5), "-5 s"),
        (timedelta(hours=-25), "-1 d 1 h"),
    ],
)
def test_a_duration_is_shown_by_its_two_largest_units(delta: timedelta, words: str) -> None:
    assert in_words(delta) == words


@given(st.timedeltas(min_value=timedelta(microseconds=1), max_value=timedelta(days=10_000)))
def test_the_text_of_a_duration_is_read_as_the_same_duration(length: timedelta) -> None:
    assert parse_duration(text_of_duration(length)) == length
