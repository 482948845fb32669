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


def answered(courier: Courier, run: dict[str, Any]) -> None:
    """A person approves."""
    query = "SELECT approval.id FROM runs_approval approval JOIN runs_wait wait ON wait.id = approval.wait_id "
    query += "WHERE wait.run_id = %s AND wait.status = 'open' AND approval.decision = ''"
    [approval] = eventually(lambda: courier.stack.query(query, run["id"]), PATIENCE)
    answer = courier.stack.api("POST", f"/api/v1/approvals/{approval['id']}/decide/", {"decision": "approve"})
    assert answer.status == 200, answer.body


def assert_it_is_as_if_nothing_had_happened(
    courier: Courier, wire: Wire, run: dict[str, Any], at: str, more: int
) -> None:
    assert (run["status"], run["result"]) == ("succeeded", RESULT), (at, run["error"])
    assert courier.entries(run) == ["booked"], at
    asked = {node: sum(wire.asked(f"{run['id']}-{node}").values()) for node in MODELS}
    assert all(asked.values()) and sum(asked.values()) <= len(MODELS) + more, (at, asked)
    recorded = courier.stack.query("SELECT key FROM runs_step WHERE run_id = %s AND kind = 'model'", run["id"])
    assert len(recorded) == len(MODELS), (at, recorded)


def restarted_when_dead(courier: Courier) -> None:
    worker = courier.processes["worker-1"]
    eventually(lambda: not worker.is_alive(), PATIENCE)
    worker.restart(wait=False)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("type", ["trip.wanted", "trip.wanted_async"])
def test_a_worker_killed_in_any_node_books_once_and_pays_each_recorded_answer_once(
    courier: Courier, wire: Wire, type: str
) -> None:
    for node in NODES:
        event = courier.emit(type, dies_in=node)
        run = courier.run(event)
        if node in ("asked", "letter"):
            answered(courier, run)
            restarted_when_dead(courier)
        else:
            restarted_when_dead(courier)
            answered(courier, run)

        done = courier.finished(event, PATIENCE)

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
    killed = 0
    for point, visit in EVERY if FULL else EVERY[::7]:
        points.arm(point, f"{'killall' if visit % 5 == 0 else 'kill'}@{visit}")
        event = courier.emit(type)
        run = courier.run(event)

        def died_or_waits(run: dict[str, Any] = run, point: str = point) -> bool:
            waits = "SELECT FROM runs_run WHERE id = %s AND status IN ('waiting', 'succeeded')"
            return bool(points.hit(point) or courier.stack.query(waits, run["id"]))

        eventually(died_or_waits, PATIENCE)
        if points.hit(point) and visit % 5 == 0:
            restarted_when_dead(courier)
        was_hit = bool(points.hit(point))
        answered(courier, run)
        if not was_hit and visit % 5 == 0:
            eventually(lambda point=point: points.hit(point), 20)  # type: ignore[misc]
            restarted_when_dead(courier)

        done = courier.finished(event, PATIENCE)
        killed += bool(points.hit(point))
        points.release(point)

        # The requests that were in flight: two nodes ask beside each other.
        assert_it_is_as_if_nothing_had_happened(courier, wire, done, f"{type} {point}@{visit}", more=2)
    assert killed > len(EVERY if FULL else EVERY[::7]) // 2
    courier.verify()
