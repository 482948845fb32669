"""Kill at every failpoint of a run of twenty steps. WAKEFUL_FULL=1 does so at every visit of each; otherwise a sample."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.courier import Courier, eventually
from tests.support.receiver import receiving
from tests.support.stack import StackMaker

pytestmark = pytest.mark.chaos

ROUNDS = 5
FULL = bool(os.environ.get("WAKEFUL_FULL"))
# How often a run of twenty steps comes to each: two steps of a round have an intent, one of them because of a value that
# it is given, and three are called outside of a transaction.
VISITS = {
    "after_claim": 1,
    "after_step_body": ROUNDS,
    "before_intent_commit": 2 * ROUNDS,
    "after_intent_commit": ROUNDS,
    "after_call": 3 * ROUNDS,
    "before_step_commit": 4 * ROUNDS,
    "after_step_commit": 4 * ROUNDS,
    "after_body": 1,
    "before_commit": 1,
    "after_commit": 1,
}
# Where a call of each effect is under way, or has just been made: read, idempotent, at_most_once.
SAMPLE = {
    "after_claim": [1],
    "after_step_body": [3],
    "before_intent_commit": [3, 4],
    "after_intent_commit": [2],
    "after_call": [4, 5, 6],
    "before_step_commit": [12],
    "after_step_commit": [13],
    "after_body": [1],
    "before_commit": [1],
    "after_commit": [1],
}
EVERY = [(point, visit) for point, visits in VISITS.items() for visit in range(1, visits + 1)]
KILLS = EVERY if FULL else [(point, visit) for point, visits in SAMPLE.items() for visit in visits]
CUTS = (
    EVERY
    if FULL
    else [("after_step_body", 2), ("after_intent_commit", 3), ("after_call", 3), ("before_step_commit", 7)]
)
WHOLE_WORKER = EVERY[::9] if FULL else [("after_call", 6)]


@pytest.fixture(scope="module")
def courier(make_shared_stack: StackMaker) -> Iterator[Courier]:
    """A stack with one worker that has a single child: whatever dies there dies alone."""
    with receiving() as receiver:
        courier = Courier(make_shared_stack, receiver)
        courier.up()
        yield courier


def struck(courier: Courier, point: str, visit: int, action: str) -> dict[str, Any]:
    """A run that met this at its so-manieth visit of the point, once it has finished."""
    points = courier.points["worker-1"]
    points.arm(point, f"{action}@{visit}")
    event = courier.emit("courier.twenty")
    eventually(lambda: points.hit(point), 20)
    if action == "killall":
        courier.processes["worker-1"].kill()
        courier.processes["worker-1"].restart(wait=False)
    run = courier.finished(event)
    points.release(point)
    return run


def assert_every_effect_kept_its_promise(courier: Courier, run: dict[str, Any], at: str) -> None:
    receiver, rounds = courier.receiver, range(ROUNDS)
    assert run["status"] == "succeeded", (at, run["status"], run["error"])
    assert courier.entries(run) == [f"write-{number}" for number in rounds], at
    # One key a step, and every call under it had the same content; once and for all where it may happen at most once.
    assert set(receiver.keys("/look", run["id"])) == {f"{run['id']}:look-{number}" for number in rounds}, at
    paid = [f"{run['id']}:pay:{number}" for number in rounds]
    assert set(receiver.keys("/pay", run["id"])) == set(paid), at
    assert all(len({str(body) for body in receiver.bodies("/pay", key)}) == 1 for key in paid), at
    rung = [f"{run['id']}:ring:{number}" for number in rounds]
    assert receiver.keys("/ring", run["id"]) == rung, at
    # And the run knows what was answered.
    assert run["result"][0::4] == courier.entries(run), at
    assert run["result"][2::4] == [receiver.receipts[key] for key in paid], at
    assert run["result"][3::4] == [receiver.receipts[key] for key in rung], at


@pytest.mark.timeout(900)
def test_a_run_killed_anywhere_repeats_each_step_only_as_its_effect_allows(courier: Courier) -> None:
    courier.resolved.clear()
    for point, visit in KILLS:
        run = struck(courier, point, visit, "kill")
        assert_every_effect_kept_its_promise(courier, run, f"{point}@{visit}")
        assert courier.outcomes(run).count("lost") == (point != "after_commit"), point
    assert courier.resolved["happened"] and courier.resolved["did_not_happen"]
    courier.verify()


@pytest.mark.timeout(900)
def test_a_run_whose_whole_worker_dies_or_whose_session_is_cut_does_so_too(courier: Courier) -> None:
    for point, visit in WHOLE_WORKER:
        run = struck(courier, point, visit, "killall")
        assert_every_effect_kept_its_promise(courier, run, f"killall {point}@{visit}")
    for point, visit in CUTS:
        run = struck(courier, point, visit, "cut")
        assert_every_effect_kept_its_promise(courier, run, f"cut {point}@{visit}")
    courier.verify()


@pytest.mark.parametrize("point", ["before_record_commit", "after_record_commit"])
def test_a_worker_killed_while_it_parks_a_run_leaves_it_parked_and_nothing_is_sent_again(
    courier: Courier, point: str
) -> None:
    courier.resolved.clear()
    courier.receiver.unanswered.add("ring:2")

    run = struck(courier, point, 1, "kill")

    courier.receiver.unanswered.clear()
    assert_every_effect_kept_its_promise(courier, run, point)
    assert courier.resolved == {"happened": 1}
    courier.verify()
