"""A few seconds of `make chaos`, so that it is known to work: a kill in the midst of a commit, a cut session,
and a kill over a call to the outside."""

from pathlib import Path
from typing import Any

import pytest

from tests.chaos.lab import lab
from tests.chaos.play import Totals, play
from tests.chaos.scenarios import (
    BROKER_SPECIALS,
    DISPATCH_SPECIALS,
    DURABLE_SPECIALS,
    MATRIX,
    POINTS,
    SPECIALS,
    Fault,
    Point,
    Scenario,
    sample,
)

pytestmark = pytest.mark.sampled

KILLED_BEFORE_ITS_COMMIT = Scenario(point=Point(name="before_commit", kind="worker", child=True), fault=Fault.KILL)
KILLED_AFTER_A_CALL = Scenario(point=Point(name="after_call", kind="worker", child=True), fault=Fault.KILL)
CUT_IN_DISPATCH = Scenario(point=Point(name="before_dispatch_commit", kind="dispatcher"), fault=Fault.CUT)


@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_seeds_are_played_and_every_promise_holds(tmp_path: Path, django_db_blocker: Any) -> None:
    totals = Totals()
    crew = {"web": 1, "beat": 1, "dispatcher": 1, "worker": 1}

    with lab(tmp_path / "lab", crew=crew, blocker=django_db_blocker) as here:
        for seed, scenario in enumerate((KILLED_BEFORE_ITS_COMMIT, CUT_IN_DISPATCH, KILLED_AFTER_A_CALL)):
            played = play(here, seed, scenario)
            totals.add(played)
            assert played.holds, (played.failures, played.report.violated)

    assert totals.faults == {"kill -9": 2, "its database session cut": 1}
    assert totals.numbers["attempts lost"] >= 1
    assert totals.numbers["duplicates refused"] > 0
    for kind in ("steps", "waits that ended", "approvals decided", "children"):
        assert totals.numbers[kind] > 0, kind


def test_the_sample_has_every_point_and_every_special_trouble() -> None:
    chosen = [MATRIX[seed] for seed in sample()]

    assert {one.point for one in chosen if one.point} == set(POINTS)
    assert {one.special for one in chosen if one.special} == {
        *SPECIALS,
        *DURABLE_SPECIALS,
        *BROKER_SPECIALS,
        *DISPATCH_SPECIALS,
    }
    assert {one.fault for one in chosen if one.fault} == set(Fault)


def test_the_matrix_has_two_hundred_seeds_that_are_always_the_same() -> None:
    assert len(MATRIX) >= 200
    assert str(MATRIX[0]) == (
        "its database session cut: dispatcher at before_take_away_commit (a worker that runs something is killed)"
    )
