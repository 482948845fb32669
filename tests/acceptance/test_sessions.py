"""Two agents on one named session, workers killed: one writer at a time, and a history that is never torn."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from agents.models import Session
from tests.support.points import Points
from tests.support.stack import Process, Stack, StackMaker, eventually
from tests.support.wire import Call, Slow, Turn, Wire, providing
from triggers.api.tokens import ensure_token

USERAPPS = Path(__file__).parents[1] / "userapps"
TURNS = "SELECT number, run_id, agent, messages FROM agents_sessionturn ORDER BY number"


@pytest.fixture
def wire() -> Iterator[Wire]:
    with providing() as wire:
        slow = [Slow(0.1)] * 20
        wire.script("sing", Turn([Call("look_up", number=1)], faults=slow), Turn("sung", faults=slow))
        yield wire


@pytest.fixture
def running(make_stack: StackMaker, wire: Wire) -> Stack:
    env = {**wire.env, "WAKEFUL_APPS": "chorus", "PYTHONPATH": str(USERAPPS)}
    stack = make_stack(env=env)
    stack.manage("sync_agents")
    with stack.orm():
        ensure_token("test", stack.env["WAKEFUL_API_TOKEN"], ["*"])
        Session.objects.create(name="choir", most_characters=1_000_000)  # no turn is dropped
    stack.start("web")
    stack.start("dispatcher")
    return stack


def start_runs(stack: Stack, wire: Wire, count: int) -> None:
    for number in range(count):
        for agent in ("alto", "tenor"):
            data = {"prompt": wire.prompt("sing", f"{agent}-{number}")}
            assert stack.api("POST", f"/api/v1/triggers/{agent}/fire/", {"data": data}).status == 202


def has_sung(stack: Stack, count: int) -> bool:
    return stack.query("SELECT count(*) FROM runs_run WHERE status = 'succeeded'") == [{"count": count}]


def goes_on(stack: Stack, wire: Wire, came: int) -> bool:
    return len(wire.requests) > came or has_sung(stack, 40)


def kill(worker: Process) -> int:
    """Kill a worker with all its children; how many processes died."""
    died = len([child for child in worker.children() if child.status() != psutil.STATUS_ZOMBIE])
    worker.kill()
    worker.restart(wait=False)
    return died


def prompts_in(body: Any) -> list[str]:
    return [message["content"].strip() for message in body["messages"] if message["role"] == "user"]


def assert_history_is_whole(stack: Stack, wire: Wire, count: int) -> list[dict[str, Any]]:
    """Every run has taken one turn, each turn is whole, and each request was made with exactly the turns before it."""
    turns = stack.query(TURNS)
    assert [turn["number"] for turn in turns] == list(range(1, count + 1))
    succeeded = stack.query("SELECT id FROM runs_run WHERE status = 'succeeded'")
    assert {turn["run_id"] for turn in turns} == {run["id"] for run in succeeded} and len(succeeded) == count
    before: list[str] = []
    for turn in turns:
        parts = [[part["part_kind"] for part in message["parts"]] for message in turn["messages"]]
        assert parts == [["user-prompt"], ["tool-call"], ["tool-return"], ["text"]], turn
        prompt = turn["messages"][0]["parts"][0]["content"].strip()
        conversation = prompt.removeprefix("[script sing ").removesuffix("]")
        requests = wire.of(conversation)
        assert {request.turn for request in requests} == {0, 1}
        for request in requests:
            assert prompts_in(request.body) == [*before, prompt], (turn["number"], prompts_in(request.body))
        before.append(prompt)
    assert stack.query("SELECT run_id FROM agents_session") == [{"run_id": None}]
    return turns


@pytest.mark.chaos
def test_two_agents_share_a_history_while_their_workers_are_killed(running: Stack, wire: Wire) -> None:
    workers = [running.start("worker", concurrency=3) for _ in range(2)]
    start_runs(running, wire, 4)

    eventually(lambda: len(wire.requests) > 3)
    died = kill(workers[0])
    eventually(lambda: has_sung(running, 8), timeout=120)

    turns = assert_history_is_whole(running, wire, 8)
    assert {turn["agent"] for turn in turns} == {"alto", "tenor"}
    waits = running.query("SELECT count(*) FROM runs_wait WHERE kind = 'session'")[0]["count"]
    print(f"{died} processes killed, {waits} waits for the session, {len(wire.requests)} requests for 16")
    assert died and waits
    # Only a request that was under way is made again.
    assert len(wire.requests) <= 16 + died


@pytest.mark.chaos
def test_a_history_of_forty_turns_is_whole_after_many_kills(running: Stack, wire: Wire) -> None:
    workers = [running.start("worker", concurrency=3) for _ in range(2)]
    start_runs(running, wire, 20)

    kills = 0
    while not has_sung(running, 40):
        for worker in workers:
            came = len(wire.requests)
            eventually(partial(goes_on, running, wire, came), timeout=120)
            if kills < 10:
                kill(worker)
                kills += 1

    assert_history_is_whole(running, wire, 40)
    print(f"{kills} workers killed, {len(wire.requests)} requests for 80")


# How often a run with one turn comes to each: the history, two requests and a tool, and the turn itself.
POINTS = [
    ("before_hold_commit", 1),
    ("after_hold", 1),
    ("after_step_body", 1),
    ("before_step_commit", 4),
    ("after_step_commit", 4),
    ("before_hand_over", 1),
    ("before_commit", 1),
]


@pytest.mark.chaos
@pytest.mark.parametrize(("point", "visit"), POINTS)
def test_a_run_that_is_killed_at_any_point_of_its_turn_takes_it_once(
    running: Stack, wire: Wire, tmp_path: Path, point: str, visit: int
) -> None:
    points = Points(tmp_path / "points")
    points.arm(point, f"kill@{visit}")
    running.start("worker", concurrency=1, env=points.env)
    running.start("worker", concurrency=1, env=points.env)

    start_runs(running, wire, 2)
    eventually(lambda: has_sung(running, 4), timeout=60)

    assert points.hit(point)
    assert_history_is_whole(running, wire, 4)
