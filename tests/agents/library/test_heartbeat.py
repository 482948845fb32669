from datetime import UTC, datetime, timedelta

import pytest

from agents.library.heartbeat import heartbeat
from agents.testing import AgentResult, run_agent

pytestmark = pytest.mark.django_db

NINE = datetime(2026, 11, 20, 9, tzinfo=UTC)


def test_a_regular_pulse_is_nothing_to_report() -> None:
    beats = [beat(minute) for minute in range(3)]

    assert [done.result["missed"] for done in beats] == [0, 0, 0]
    assert not any(done.notifications for done in beats)


def test_missed_beats_are_told_to_a_person_once() -> None:
    beat(0)

    late, next_one = beat(5), beat(6)

    assert (late.result["missed"], next_one.result["missed"]) == (4, 0)
    [notice] = late.notifications
    assert notice.text == "Nothing woke between 2026-11-20 09:00 and 2026-11-20 09:05 UTC: 4 beats missed."
    assert not next_one.notifications


def test_a_beat_that_comes_late_does_not_turn_the_pulse_back() -> None:
    beat(5)

    assert beat(2).result["missed"] == 0
    assert beat(6).result["missed"] == 0


def beat(minute: int) -> AgentResult:
    return run_agent(heartbeat, time=NINE + timedelta(minutes=minute))
