from datetime import UTC, datetime, timedelta

import pytest

from agents.library.heartbeat import heartbeat
from agents.testing import AgentResult, run_agent

pytestmark = pytest.mark.django_db

NINE = datetime(2026, 11, 20, 9, tzinfo=UTC)


def test_while_all_is_well_it_comes_ever_less_often() -> None:
    beats = [beat(minute) for minute in (0, 1, 3, 7, 15, 30)]

    assert [minutes_until_next(done) for done in beats] == [1, 2, 4, 8, 15, 15]
    assert not any(done.notifications or done.result["missed"] for done in beats)
    assert beats[-1].pace and beats[-1].pace.reason == "all is well"


def test_missed_beats_are_notified_once_and_the_next_check_comes_in_one_minute() -> None:
    beat(0)
    beat(1)

    late, next_one = beat(7), beat(8)

    assert (late.result["missed"], next_one.result["missed"]) == (4, 0)
    [notice] = late.notifications
    assert notice.text == "No wake between 2026-11-20 09:03 and 2026-11-20 09:07 UTC: 4 beats missed."
    assert not next_one.notifications
    assert [minutes_until_next(done) for done in (late, next_one)] == [1, 2]


def test_a_beat_that_comes_late_does_not_turn_the_pulse_back() -> None:
    beat(5)

    assert beat(2).result["missed"] == 0
    assert beat(6).result["missed"] == 0


def beat(minute: int) -> AgentResult:
    return run_agent(heartbeat, time=NINE + timedelta(minutes=minute))


def minutes_until_next(done: AgentResult) -> float:
    assert done.pace
    return done.pace.after / timedelta(minutes=1)
