"""A graph of LangGraph in a run whose worker is killed: at each of its nodes, and at each commit between them. The result is the same, it
books once, and each answer of a model that was recorded is paid once. WAKEFUL_FULL=1 kills at every visit of each failpoint."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.courier import APPS, Courier, eventually
from tests.support.receiver import receiving
from tests.support.stack import PATIENCE, StackMaker
from tests.support.wire import Wire, providing

pytest.importorskip("langgraph")
pytestmark = pytest.mark.chaos

FULL = bool(os.environ.get("WAKEFUL_FULL"))
MODELS = ("plan", "hotel", "flight", "letter")
NODES = ("plan", "hotel", "flight", "book", "ask", "asked", "letter")
RESULT = {
    "run": "",
    "dies_in": "",
    "plan": "so",
    "found": ["flight so", "hotel so"],
    "booked": "booked",
    "approved": True,
    "letter": "so",
}
# How often a run comes to each point, its second claim (after the answer) included.
VISITS = {"after_claim": 2, "after_call": 4, "before_step_commit": 22, "after_step_commit": 22, "before_commit": 1}
EVERY = [(point, visit) for point, visits in VISITS.items() for visit in range(1, visits + 1)]
SAMPLE = [("after_call", 2), ("before_step_commit", 9), ("after_step_commit", 4), ("after_step_commit", 15)]


@pytest.fixture(scope="module")
def wire() -> Iterator[Wire]:
    with providing() as wire:
        wire.script("trip", "so")
        yield wire


@pytest.fixture(scope="module")
def courier(make_shared_stack: StackMaker, wire: Wire, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Courier]:
    marks: Path = tmp_path_factory.mktemp("marks")
    with receiving() as receiver:
        apps = {"WAKEFUL_APPS": f"{APPS['WAKEFUL_APPS']},navigator", "NAVIGATOR_MARKS": str(marks)}
        courier = Courier(make_shared_stack, receiver, {**wire.env, **apps})
        courier.up()
        yield courier


OPEN = """
SELECT approval.id FROM runs_approval approval JOIN runs_wait wait ON wait.id = approval.wait_id
WHERE wait.run_id = %s AND wait.status = 'open' AND approval.decision = ''
"""


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
    courier: Courier, wire: Wire, run: dict[str, Any], at: str, more: int
) -> None:
    assert (run["status"], run["result"]) == ("succeeded", RESULT), (at, run["error"])
    assert courier.entries(run) == ["booked"], at
    asked = {node: sum(wire.asked(f"{run['id']}-{node}").values()) for node in MODELS}
    assert all(asked.values()) and sum(asked.values()) <= len(MODELS) + more, (at, asked)
    recorded = courier.stack.query("SELECT key FROM runs_step WHERE run_id = %s AND kind = 'model'", run["id"])
    assert len(recorded) == len(MODELS), (at, recorded)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("type", ["trip.wanted", "trip.wanted_async"])
def test_a_worker_killed_in_any_node_books_once_and_pays_each_recorded_answer_once(
    courier: Courier, wire: Wire, type: str
) -> None:
    for node in NODES:
        done = ended(courier, courier.emit(type, dies_in=node))

        # Of the node that dies beside another, the request of the other may have been in flight.
        more = 1 if node in ("hotel", "flight") else 0
        assert_it_is_as_if_nothing_had_happened(courier, wire, done, f"{type} {node}", more)
        assert courier.outcomes(done).count("lost") == 1, node
    courier.verify()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("type", ["trip.wanted", "trip.wanted_async"])
def test_a_worker_killed_at_any_commit_books_once_and_pays_each_recorded_answer_once(
    courier: Courier, wire: Wire, type: str
) -> None:
    points = courier.points["worker-1"]
    kills = EVERY if FULL else SAMPLE
    killed = 0
    for number, (point, visit) in enumerate(kills):
        points.arm(point, f"{'killall' if number % 4 == 3 else 'kill'}@{visit}")
        done = ended(courier, courier.emit(type))
        killed += bool(points.hit(point))
        points.release(point)

        # The requests that were in flight: two nodes ask beside each other.
        assert_it_is_as_if_nothing_had_happened(courier, wire, done, f"{type} {point}@{visit}", more=2)
    assert killed > len(kills) // 2
    courier.verify()
