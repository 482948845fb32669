"""An agent of openai-agents in a run whose worker is killed: after each of its turns, and at each commit between them. The result is the
same, it books once, and each answer of a model that was recorded is paid once. WAKEFUL_FULL=1 kills at every visit of each failpoint."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents.openai import assistants  # which skips these where the SDK is not
from tests.integration.courier import APPS, Courier, eventually
from tests.support.receiver import receiving
from tests.support.stack import PATIENCE, StackMaker
from tests.support.wire import Call, Held, Turn, Wire, providing

assert assistants.SDK
pytestmark = pytest.mark.chaos

FULL = bool(os.environ.get("WAKEFUL_FULL"))
TURNS = 4  # of the planner and the writer; the expert has one
REQUESTS = TURNS + 1
# How often a run comes to each point, its second claim (after the approval) included.
VISITS = {"after_claim": 2, "after_call": 5, "before_step_commit": 6, "after_step_commit": 6, "before_commit": 1}
EVERY = [(point, visit) for point, visits in VISITS.items() for visit in range(1, visits + 1)]
SAMPLE = [("after_call", 2), ("before_step_commit", 3), ("after_step_commit", 4), ("before_commit", 1)]
OPEN = """
SELECT approval.id FROM runs_approval approval JOIN runs_wait wait ON wait.id = approval.wait_id
WHERE wait.run_id = %s AND wait.status = 'open' AND approval.decision = ''
"""


@pytest.fixture(scope="module")
def wire() -> Iterator[Wire]:
    with providing() as wire:
        calls = [Call("expert", input=wire.prompt("word", "expert")), Call("book", city="Oslo")]
        wire.script("secretary", calls, [Call("transfer_to_writer")], [Call("send", text="hello")], "sent")
        wire.script("word", "so")
        yield wire


@pytest.fixture(scope="module")
def courier(make_shared_stack: StackMaker, wire: Wire, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Courier]:
    marks: Path = tmp_path_factory.mktemp("marks")
    with receiving() as receiver:
        apps = {"WAKEFUL_APPS": f"{APPS['WAKEFUL_APPS']},secretary", "SECRETARY_MARKS": str(marks)}
        courier = Courier(make_shared_stack, receiver, {**wire.env, **apps})
        courier.up()
        yield courier


def ended(courier: Courier, event: str) -> dict[str, Any]:
    """The run of the event, once it has finished. A worker that died is started again, and a person approves what it asks."""
    run, worker = courier.run(event), courier.processes["worker-1"]

    def look() -> bool:
        if not worker.is_alive():
            worker.restart(wait=False)
        for approval in courier.stack.query(OPEN, run["id"]):
            courier.stack.api("POST", f"/api/v1/approvals/{approval['id']}/decide/", {"decision": "approve"})
        ended = "SELECT id FROM runs_run WHERE id = %s AND status IN ('succeeded', 'failed', 'cancelled', 'uncertain')"
        return bool(courier.stack.query(ended, run["id"]))

    eventually(look, 2 * PATIENCE)
    return courier.finished(event, PATIENCE)


def assert_it_is_as_if_nothing_had_happened(
    courier: Courier, wire: Wire, run: dict[str, Any], at: str, *, expert: int, more: int
) -> None:
    """`expert`: how often the expert was asked before this run."""
    assert (run["status"], run["result"]) == ("succeeded", ["writer", "sent"]), (at, run["error"])
    assert courier.entries(run) == ["booked"], at
    asked = sum(wire.asked(run["id"]).values()) + sum(wire.asked("expert").values()) - expert
    assert REQUESTS <= asked <= REQUESTS + more, (at, asked)
    recorded = courier.stack.query("SELECT key FROM runs_step WHERE run_id = %s AND kind = 'model'", run["id"])
    assert len(recorded) == REQUESTS, (at, recorded)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("type", ["plan.wanted", "plan.wanted_async"])
def test_a_worker_killed_after_any_turn_books_once_and_pays_each_answer_once(
    courier: Courier, wire: Wire, type: str
) -> None:
    for turn in range(1, TURNS + 1):
        expert = sum(wire.asked("expert").values())
        done = ended(courier, courier.emit(type, dies_after=turn))

        assert_it_is_as_if_nothing_had_happened(courier, wire, done, f"{type} {turn}", expert=expert, more=0)
        assert courier.outcomes(done).count("lost") == 1, turn
    courier.verify()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("type", ["plan.wanted", "plan.wanted_async"])
def test_a_worker_killed_at_any_commit_books_once_and_pays_each_recorded_answer_once(
    courier: Courier, wire: Wire, type: str
) -> None:
    points = courier.points["worker-1"]
    kills = EVERY if FULL else SAMPLE
    killed = 0
    for number, (point, visit) in enumerate(kills):
        expert = sum(wire.asked("expert").values())
        points.arm(point, f"{'killall' if number % 4 == 3 else 'kill'}@{visit}")
        done = ended(courier, courier.emit(type))
        killed += bool(points.hit(point))
        points.release(point)

        # The request whose answer was not recorded yet.
        assert_it_is_as_if_nothing_had_happened(courier, wire, done, f"{type} {point}@{visit}", expert=expert, more=1)
    assert killed > len(kills) // 2
    courier.verify()


def test_a_run_that_is_cancelled_while_a_request_is_under_way_makes_no_other(courier: Courier, wire: Wire) -> None:
    held = Held()
    wire.script("held", Turn([Call("book", city="Oslo")], faults=[held]), "booked")
    run = courier.run(courier.emit("plan.wanted", script="held"))
    eventually(lambda: wire.of(run["id"]), PATIENCE)

    answer = courier.stack.api("POST", f"/api/v1/runs/{run['id']}/cancel/")
    held.release()

    assert answer.status < 300, answer.body
    now = eventually(
        lambda: [
            one
            for one in courier.stack.query("SELECT status FROM runs_run WHERE id = %s", run["id"])
            if one["status"] not in ("queued", "running")
        ],
        PATIENCE,
    )
    assert now[0]["status"] == "cancelled"
    assert wire.asked(run["id"]) == {0: 1} and courier.entries(run) == []
    courier.verify()
