"""The leader's steps: all of them are listed, each is done when a look finds it due, and an idle look finds none."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from unittest.mock import patch

import pytest

from runs.chores import timers
from runs.db.sql import fetch
from triggers.dispatch import offers, replay_pieces
from triggers.dispatch.batch import Batch
from triggers.dispatch.looks import DispatchTimers, Seen
from triggers.dispatch.rules import Rules
from triggers.dispatch.steps import Steps

NAMES = ["move offers", "advance replays", "close windows", "arm switches", "follow the clock", "open switches"]
VERSION = 7
IDLE = DispatchTimers(version=VERSION)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOW = timedelta()


def seen(own: DispatchTimers = IDLE, at: datetime = NOON) -> Seen:
    return Seen(own=own, runs=replace(timers.everything_is_due(), at=at))


def armed_at_noon() -> Steps:
    steps = Steps(Rules())
    steps.armed, steps.newest = VERSION, NOON
    return steps


def test_the_steps_are_these_in_this_order() -> None:
    assert [step.name for step in Steps(Rules()).all] == NAMES


@pytest.mark.parametrize(
    ("seen", "due"),
    [
        (seen(), []),
        (seen(replace(IDLE, offer=NOW)), ["move offers"]),
        (seen(replace(IDLE, replay=NOW)), ["advance replays"]),
        (seen(replace(IDLE, window=NOW)), ["close windows"]),
        (seen(replace(IDLE, version=VERSION + 1)), ["arm switches"]),
        (seen(replace(IDLE, absence=NOW)), ["open switches"]),
        (seen(at=NOON - timedelta(seconds=2)), ["follow the clock"]),
        (seen(at=timers.BEGINNING), []),  # the look has failed
        (seen(replace(IDLE, offer=timedelta(seconds=1), absence=timedelta(hours=1))), []),
    ],
)
def test_a_step_is_due_where_the_look_found_work_for_it(seen: Seen, due: list[str]) -> None:
    assert [step.name for step in armed_at_noon().all if step.is_due(seen)] == due


@pytest.mark.django_db
def test_a_step_that_fails_keeps_no_other_from_its_turn() -> None:
    fetch("SELECT 1")  # so that the session is not lost
    with (
        patch.object(offers, "move", side_effect=OSError),
        patch.object(replay_pieces, "advance", return_value=3),
    ):
        done = armed_at_noon().do(seen(replace(IDLE, offer=NOW, replay=NOW)), leads=True)

    assert done == Batch(ready=3)


def test_a_stand_by_does_none_of_them_but_follows_the_time() -> None:
    steps = armed_at_noon()

    with patch.object(offers, "move", side_effect=AssertionError):
        done = steps.do(seen(replace(IDLE, offer=NOW, version=8), at=NOON + timedelta(hours=1)), leads=False)

    assert done == Batch()
    assert steps.armed == VERSION
    assert steps.newest == NOON + timedelta(hours=1)
