"""Agents of a user's app that ask a model over HTTP, named by settings alone, while their workers are killed: each turn is paid
once, and at most one request more is made for each kill. WAKEFUL_FULL=1 kills at every visit of each failpoint."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.courier import APPS, Courier, eventually
from tests.integration.protocol import runs
from tests.support.receiver import receiving
from tests.support.stack import PATIENCE, StackMaker, within
from tests.support.wire import Call, Held, Turn, Wire, providing

pytestmark = pytest.mark.sampled

FULL = bool(os.environ.get("WAKEFUL_FULL"))
ROUNDS = 5  # of three tools side by side, and an answer
TURNS = ROUNDS + 1
# How often a run comes to each point: the first request has an intent to commit, since the call of run.llm draws a value.
VISITS = {
    "after_claim": 1,
    "after_step_body": ROUNDS,
    "before_intent_commit": 1 + ROUNDS,
    "after_intent_commit": ROUNDS,
    "after_call": TURNS + 2 * ROUNDS,
    "before_step_commit": TURNS + 3 * ROUNDS,
    "after_step_commit": TURNS + 3 * ROUNDS,
    "after_body": 1,
    "before_commit": 1,
    "after_commit": 1,
}
# A request to a model is an intent as well.
PARKED = {**VISITS, "before_intent_commit": TURNS + ROUNDS, "after_intent_commit": TURNS + ROUNDS}
EVERY = [(point, visit) for point, visits in VISITS.items() for visit in range(1, visits + 1)]
EVERY_PARKED = [(point, visit) for point, visits in PARKED.items() for visit in range(1, visits + 1)]
SAMPLE = {"scribe.six": ("after_call", 4), "scribe.six_async": ("before_step_commit", 5)}


@pytest.fixture(scope="module")
def wire() -> Iterator[Wire]:
    with providing() as wire:
        wire.script(
            "six",
            *[[Call(tool, number=number) for tool in ("note", "pay", "ring")] for number in range(ROUNDS)],
            "done",
        )
        wire.script("one", "said")
        yield wire


@pytest.fixture(scope="module")
def courier(make_shared_stack: StackMaker, wire: Wire) -> Iterator[Courier]:
    """A stack with one worker that has a single child: whatever dies there dies alone."""
    with receiving() as receiver:
        env = {**wire.env, "WAKEFUL_APPS": f"{APPS['WAKEFUL_APPS']},scribe", "WAKEFUL_MODEL": "openai-chat:gpt-4o"}
        courier = Courier(make_shared_stack, receiver, env)
        courier.up()
        yield courier


def struck(courier: Courier, type: str, point: str, visit: int, action: str = "kill") -> dict[str, Any]:
    """A run that was killed at its so-manieth visit of the point, once it has finished."""
    points = courier.points["worker-1"]
    points.arm(point, f"{action}@{visit}")
    event = courier.emit(type)
    eventually(lambda: points.hit(point))
    if action == "killall":
        courier.processes["worker-1"].kill()
        courier.processes["worker-1"].restart(wait=False)
    run = courier.finished(event, PATIENCE)
    points.release(point)
    return run


def assert_each_turn_was_paid_once(courier: Courier, wire: Wire, run: dict[str, Any], at: str, more: int) -> None:
    receiver, rounds = courier.receiver, range(ROUNDS)
    assert (run["status"], run["result"]) == ("succeeded", "done"), (at, run["error"])
    requests = wire.asked(run["id"])
    assert list(requests) == list(range(TURNS)) == list(wire.paid(run["id"])), at
    assert sum(requests.values()) <= TURNS + more, (at, requests)
    # Exactly once what is transactional; at most once (and the run has its answer) what may happen once.
    assert courier.entries(run) == [f"note-{number}" for number in rounds], at
    rung = [f"{run['id']}:llm scribe#1:ring call_{number}_2" for number in rounds]
    assert receiver.keys("/ring", run["id"]) == rung, at
    # Under one key what may be repeated, and each call under it had the same content.
    paid = {f"{run['id']}:llm scribe#1:pay call_{number}_1" for number in rounds}
    assert set(receiver.keys("/pay", run["id"])) == paid, at
    assert all(len({str(body) for body in receiver.bodies("/pay", key)}) == 1 for key in paid), at
    # The model got the answer.
    prompt = str(wire.of(run["id"])[-1].body["messages"])
    assert all(f"note-{number}" in prompt for number in rounds), at
    assert all(str(receiver.receipts[key]["receipt"]) in prompt for key in [*rung, *paid]), at


@pytest.mark.chaos
@pytest.mark.parametrize("type", SAMPLE)
def test_a_killed_run_requests_no_recorded_turn_again(courier: Courier, wire: Wire, type: str) -> None:
    point, visit = SAMPLE[type]
    run = struck(courier, type, point, visit)

    assert_each_turn_was_paid_once(courier, wire, run, f"{type} {point}@{visit}", more=1)
    assert courier.outcomes(run).count("lost") == 1


@pytest.mark.chaos
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("type", ["scribe.six", "scribe.six_async"])
def test_a_run_killed_anywhere_pays_each_turn_once(courier: Courier, wire: Wire, type: str) -> None:
    for point, visit in EVERY if FULL else EVERY[::8]:
        run = struck(courier, type, point, visit)
        assert_each_turn_was_paid_once(courier, wire, run, f"{type} {point}@{visit}", more=1)
        assert courier.outcomes(run).count("lost") == (point != "after_commit"), point
    courier.verify()


@pytest.mark.chaos
@pytest.mark.timeout(3600)
def test_a_run_whose_requests_may_be_made_once_is_parked_and_resolved(courier: Courier, wire: Wire) -> None:
    for point, visit in EVERY_PARKED if FULL else EVERY_PARKED[::8]:
        before = courier.resolved["did_not_happen"]
        run = struck(courier, "scribe.six_parked", point, visit)
        # A person who decides that a request did not happen has it made again, and nothing else does.
        more = courier.resolved["did_not_happen"] - before
        assert_each_turn_was_paid_once(courier, wire, run, f"parked {point}@{visit}", more)
    assert courier.resolved["did_not_happen"] and courier.resolved["happened"]
    courier.verify()


@pytest.mark.chaos
@pytest.mark.timeout(1800)
def test_a_run_whose_whole_worker_dies_pays_each_turn_once(courier: Courier, wire: Wire) -> None:
    for point, visit in EVERY[::7] if FULL else EVERY[::20]:
        run = struck(courier, "scribe.six", point, visit, "killall")
        assert_each_turn_was_paid_once(courier, wire, run, f"killall {point}@{visit}", more=1)
    courier.verify()


@pytest.mark.chaos
def test_a_request_in_flight_at_a_kill_is_made_once_more(courier: Courier, wire: Wire) -> None:
    held = Held()
    wire.script("talk", [Call("pay", number=1)], Turn("done", faults=[held]))
    event = courier.emit("scribe.talk")
    run = courier.run(event)
    eventually(lambda: wire.asked(run["id"]) == {0: 1, 1: 1})

    courier.processes["worker-1"].kill()
    held.release()
    courier.processes["worker-1"].restart(wait=False)

    assert courier.finished(event, PATIENCE)["result"] == "done"
    assert wire.asked(run["id"]) == {0: 1, 1: 2}


@pytest.mark.chaos
def test_a_cancelled_run_cuts_its_request_within_seconds(courier: Courier, wire: Wire) -> None:
    wire.script("talk", Turn("done", faults=[Held()]))
    event = courier.emit("scribe.talk")
    run = courier.run(event)
    eventually(lambda: wire.of(run["id"]))

    with within(5):
        assert courier.stack.api("POST", f"/api/v1/runs/{run['id']}/cancel/").status == 200
        eventually(lambda: wire.of(run["id"])[0].end == "left")

    eventually(lambda: runs(courier.stack, "id = %s", run["id"])[0]["status"] == "cancelled")


@pytest.mark.chaos
@pytest.mark.parametrize("type", ["scribe.loop", "scribe.loop_async"])
def test_calls_in_a_loop_beside_steps_are_made_once_each(courier: Courier, wire: Wire, type: str) -> None:
    for visit in range(1, 9) if FULL else (3,):
        action = "killall" if visit % 3 == 0 else "kill"
        run = struck(courier, type, "after_step_commit", visit, action)

        assert (run["status"], run["result"]) == ("succeeded", ["said"] * 4)
        assert [wire.asked(f"{run['id']}-{number}") for number in range(4)] == [{0: 1}] * 4, visit
        assert courier.entries(run) == [f"write-{number}" for number in range(4)], visit
