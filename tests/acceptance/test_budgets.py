"""Money that cannot be overspent: runs on real processes under a cap of a dollar a day, at a provider over HTTP."""

from collections.abc import Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from runs.budgets.caps import create_budget
from runs.models import ModelPrice
from tests.support.points import Points
from tests.support.stack import Stack, StackMaker, eventually
from tests.support.wire import Call, Slow, Turn, Wire, providing
from triggers.api.tokens import ensure_token

USERAPPS = Path(__file__).parents[1] / "userapps"
RUNS = 50
EACH = Decimal("0.02")  # dollars for a request: 20 output tokens at $1,000 a million; it may cost 40


@pytest.fixture
def wire() -> Iterator[Wire]:
    with providing() as wire:
        yield wire


@pytest.fixture
def running(make_stack: StackMaker, wire: Wire) -> Stack:
    env = {**wire.env, "WAKEFUL_APPS": "clerks", "PYTHONPATH": str(USERAPPS)}
    stack = make_stack(env=env)
    stack.manage("sync_agents")
    wire.script(
        "letter",
        Turn([Call("look_up", number=1)], faults=[Slow(0.2)]),
        Turn("answered", faults=[Slow(0.2)]),
    )
    with stack.orm():
        ensure_token("test", stack.env["WAKEFUL_API_TOKEN"], ["*"])
        ModelPrice.objects.create(model="openai:gpt-4o", input=0, output=1000)
        create_budget(scope="installation", period="day", measure="usd", cap=Decimal(1), by="test")
    return stack


def statuses(stack: Stack) -> dict[str, int]:
    return {row["status"]: row["count"] for row in stack.query("SELECT status, count(*) FROM runs_run GROUP BY status")}


def start_runs(stack: Stack, wire: Wire) -> None:
    for number in range(RUNS):
        start_run(stack, wire, number)


def start_run(stack: Stack, wire: Wire, number: int) -> None:
    data = {"prompt": wire.prompt("letter", number)}
    assert stack.api("POST", "/api/v1/triggers/clerk/fire/", {"data": data}).status == 202


def window(stack: Stack) -> dict[str, Any]:
    [row] = stack.query("SELECT spent, reserved FROM runs_budgetwindow")
    return row


def raise_cap(stack: Stack, cap: str) -> None:
    [budget] = stack.api("GET", "/api/v1/budgets/").json()["results"]
    assert stack.api("PATCH", f"/api/v1/budgets/{budget['id']}/", {"cap": cap}).status == 200


def is_settled(stack: Stack) -> bool:
    """Does every run that has not finished wait for budget, with nothing under way?"""
    return set(statuses(stack)) <= {"succeeded", "waiting"} and window(stack)["reserved"] == 0


@pytest.mark.chaos
def test_50_runs_stay_under_a_cap_and_finish_once_it_is_raised(running: Stack, wire: Wire) -> None:
    running.up(workers=2, concurrency=4, beat=False)
    start_runs(running, wire)

    eventually(lambda: sum(statuses(running).values()) == RUNS and is_settled(running), timeout=120)

    spent = len(wire.requests) * EACH
    assert Decimal("0.94") <= spent <= 1  # no less either: room for a request (0.04) is not left unused
    assert window(running)["spent"] == spent
    assert statuses(running)["waiting"] > 0
    kinds = running.query("SELECT DISTINCT kind FROM runs_wait WHERE status = 'open'")
    assert kinds == [{"kind": "budget"}]

    raise_cap(running, "5.00")

    eventually(lambda: statuses(running) == {"succeeded": RUNS}, timeout=120)
    assert all(wire.asked(number) == {0: 1, 1: 1} for number in range(RUNS))
    assert window(running)["spent"] == 2 * RUNS * EACH


def has_gone_on(stack: Stack, wire: Wire, came: int) -> bool:
    return len(wire.requests) > came or is_settled(stack)


@pytest.mark.chaos
def test_50_runs_stay_under_a_cap_while_workers_are_killed(running: Stack, wire: Wire) -> None:
    running.start("web")
    running.start("dispatcher")
    workers = [running.start("worker", concurrency=4) for _ in range(2)]
    start_runs(running, wire)

    killed = 0

    def kill_each() -> None:
        nonlocal killed
        for worker in workers:
            came = len(wire.requests)
            eventually(partial(has_gone_on, running, wire, came))
            killed += len([child for child in worker.children() if child.status() != psutil.STATUS_ZOMBIE])
            worker.kill()
            worker.restart()

    for _ in range(3):
        kill_each()
    eventually(lambda: sum(statuses(running).values()) == RUNS and is_settled(running), timeout=120)

    # A request that arrived counts as paid, even if its process was killed.
    assert len(wire.requests) * EACH <= window(running)["spent"] <= 1

    raise_cap(running, "50.00")
    kill_each()
    eventually(lambda: statuses(running) == {"succeeded": RUNS}, timeout=120)

    requests = [wire.asked(number) for number in range(RUNS)]
    again = sum(sum(turns.values()) - 2 for turns in requests)
    print(f"{killed} processes killed, {len(wire.requests)} requests for {2 * RUNS} turns, {again} of them made again")
    assert all(set(turns) == {0, 1} for turns in requests)
    # Each process that died was over one request at most; what was recorded is not requested again.
    assert 0 < again <= killed
    assert len(wire.requests) * EACH <= window(running)["spent"] <= 50


@pytest.mark.chaos
@pytest.mark.parametrize(
    ("point", "requests", "spent"),
    [
        ("before_reserve", 2, "0.04"),
        ("after_reserve", 2, "0.08"),  # it is not known that the request was never made
        ("before_settle", 3, "0.08"),
        ("after_call", 3, "0.06"),
        ("before_step_commit", 3, "0.06"),
        ("after_step_commit", 2, "0.04"),
    ],
)
def test_a_worker_that_is_killed_over_a_request_leaves_nothing_reserved_and_no_request_uncounted(
    running: Stack, wire: Wire, tmp_path: Path, point: str, requests: int, spent: str
) -> None:
    points = Points(tmp_path / "points")
    points.arm(point, "kill")
    running.start("web")
    running.start("dispatcher")
    running.start("worker", concurrency=1, env=points.env)

    start_run(running, wire, 0)
    eventually(lambda: statuses(running) == {"succeeded": 1})

    assert points.hit(point)
    assert len(wire.requests) == requests
    eventually(lambda: window(running) == {"spent": Decimal(spent), "reserved": 0})


# The functions of this schema are found first.
MOVED_CLOCK = [
    "CREATE SCHEMA moved",
    "CREATE TABLE moved.clock (ahead interval)",
    "INSERT INTO moved.clock VALUES ('0')",
    """CREATE FUNCTION moved.clock_timestamp() RETURNS timestamptz LANGUAGE sql
    AS 'SELECT pg_catalog.clock_timestamp() + ahead FROM moved.clock'""",
    "DO $$ BEGIN EXECUTE format('ALTER DATABASE %%I SET search_path = moved, pg_catalog, public', current_database()); END $$",
]


@pytest.mark.chaos
def test_a_run_without_budget_goes_on_once_its_window_turns(running: Stack, wire: Wire) -> None:
    for statement in MOVED_CLOCK:
        running.query(statement)
    running.up(workers=1, concurrency=1, beat=False)
    raise_cap(running, "0.05")
    start_run(running, wire, 0)
    eventually(lambda: statuses(running) == {"waiting": 1})
    [first] = running.query("SELECT ends_at, spent FROM runs_budgetwindow")
    assert (len(wire.requests), first["spent"]) == (1, EACH)

    running.query("UPDATE moved.clock SET ahead = %s - pg_catalog.clock_timestamp()", first["ends_at"])

    eventually(lambda: statuses(running) == {"succeeded": 1})
    assert wire.asked(0) == {0: 1, 1: 1}
    windows = running.query("SELECT starts_at, spent, reserved FROM runs_budgetwindow ORDER BY starts_at")
    assert [(one["spent"], one["reserved"]) for one in windows] == [(EACH, 0), (EACH, 0)]
    assert windows[1]["starts_at"] == first["ends_at"]
