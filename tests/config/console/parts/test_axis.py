from datetime import UTC, datetime, timedelta

import pytest

from config.console.parts.axis import Axis

NINE = datetime(2026, 11, 20, 9, tzinfo=UTC)


def after(**length: float) -> datetime:
    return NINE + timedelta(**length)


def test_an_axis_without_gaps_is_drawn_to_scale() -> None:
    axis = Axis(NINE, after(seconds=10), [(NINE, after(seconds=10))])

    assert [axis.at(after(seconds=second)) for second in (0, 2.5, 10)] == [0, 25, 100]
    assert axis.shortened == ""
    assert axis.bands == []


def test_three_days_of_sleep_leave_half_of_the_axis_to_two_seconds_of_work() -> None:
    work = [(NINE, after(seconds=1)), (after(days=3), after(days=3, seconds=1))]

    axis = Axis(NINE, after(days=3, seconds=1), work)

    assert axis.at(after(seconds=1)) == pytest.approx(25, abs=0.01)
    assert axis.at(after(days=3)) == pytest.approx(75, abs=0.01)
    assert axis.bands == [(axis.at(after(seconds=1)), axis.at(after(days=3)))]
    assert axis.shortened == "1 : 129,600"


def test_a_short_pause_is_not_shortened() -> None:
    axis = Axis(NINE, after(seconds=10), [(NINE, after(seconds=4)), (after(seconds=6), after(seconds=10))])

    assert axis.at(after(seconds=5)) == 50
    assert axis.shortened == ""


def test_work_that_overlaps_or_reaches_beyond_counts_once() -> None:
    work = [
        (after(seconds=-5), after(seconds=3)),
        (after(seconds=2), after(seconds=4)),
        (after(hours=2), after(hours=3)),
    ]

    axis = Axis(NINE, after(seconds=8), work)

    assert axis.at(after(seconds=4)) == 50
    assert axis.at(after(hours=1)) == 100
    assert axis.at(after(seconds=-1)) == 0


def test_a_moment_without_length_has_a_place() -> None:
    assert Axis(NINE, NINE).at(NINE) == 0
