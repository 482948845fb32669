"""Policies on the real thing: what a dispatcher and workers make of events that come in quick succession."""

import time
from typing import Any

import pytest

from tests.integration.protocol import emit, in_status, runs
from tests.support.stack import Stack, StackMaker, eventually, within

AGENTS = """
import asyncio
import time

from agents import AgentRun, agent, on


def numbers(run: AgentRun) -> list[int]:
    return [event.data["n"] for event in run.events]


@agent("debounced", triggers=[on.event("debounce")], key="event.data.who", debounce="1s")
def debounced(run: AgentRun) -> list[int]:
    return numbers(run)


@agent("batched", triggers=[on.event("batch")], batch=4, max_wait="2s")
def batched(run: AgentRun) -> list[int]:
    return numbers(run)


@agent("rated", triggers=[on.event("rate")], rate="2/3s")
def rated(run: AgentRun) -> list[int]:
    return numbers(run)


@agent("one-waits", triggers=[on.event("one")], overlap="queue_one")
def one_waits(run: AgentRun) -> list[int]:
    time.sleep(1)
    return numbers(run)


@agent("latest-wins", triggers=[on.event("latest")], overlap="cancel_previous")
def latest_wins(run: AgentRun) -> list[int]:
    time.sleep(run.event.data["seconds"])
    return numbers(run)


@agent("two-at-once", triggers=[on.event("two")], key_limit=2)
def two_at_once(run: AgentRun) -> None:
    time.sleep(0.3)


@agent("late", triggers=[on.event("late")], timeout="1s")
async def late(run: AgentRun) -> None:
    await asyncio.sleep(60)
"""


@pytest.fixture(scope="module")
def stack(make_shared_stack: StackMaker, tmp_path_factory: pytest.TempPathFactory) -> Stack:
    """One for all tests: each has an agent of its own."""
    folder = tmp_path_factory.mktemp("elsewhere")
    (folder / "pace").mkdir()
    (folder / "pace" / "__init__.py").touch()
    (folder / "pace" / "agents.py").write_text(AGENTS)
    stack = make_shared_stack(env={"WAKEFUL_APPS": "pace", "PYTHONPATH": str(folder)}, agents=True)
    stack.start("dispatcher", wait=False)
    stack.start("worker", concurrency=4)
    return stack


def send(stack: Stack, type: str, count: int, **data: Any) -> list[str]:
    return [emit(stack, type, f"{type}-{time.monotonic_ns()}", n=n, **data) for n in range(count)]


def results(stack: Stack, agent: str) -> list[Any]:
    return [run["result"] for run in runs(stack, "agent = %s AND status = 'succeeded'", agent)]


def outcomes(stack: Stack, events: list[str]) -> list[str]:
    rows = stack.query("SELECT outcome FROM triggers_decision WHERE event_id = ANY(%s::uuid[]) ORDER BY id", events)
    return [row["outcome"] for row in rows]


@pytest.mark.sampled
def test_a_debounce_ends_by_itself_and_hands_everything_over(stack: Stack) -> None:
    events = send(stack, "debounce", 3, who="ada") + send(stack, "debounce", 2, who="bob")

    with within(4):
        eventually(lambda: sorted(results(stack, "debounced")) == [[0, 1], [0, 1, 2]])

    assert outcomes(stack, events) == ["collected"] * 5
    processed = stack.query("SELECT count(*) FROM runs_processedevent WHERE event_id = ANY(%s::uuid[])", events)
    assert processed == [{"count": 5}]


@pytest.mark.sampled
def test_a_batch_starts_when_it_is_full_and_its_rest_when_its_time_is_over(stack: Stack) -> None:
    send(stack, "batch", 6)

    with within(1.5):
        eventually(lambda: results(stack, "batched")[:1] == [[0, 1, 2, 3]])
    eventually(lambda: results(stack, "batched") == [[0, 1, 2, 3], [4, 5]])


@pytest.mark.chaos
def test_no_more_start_than_the_rate_allows_and_all_do_in_the_end(stack: Stack) -> None:
    send(stack, "rate", 5)

    eventually(lambda: len(results(stack, "rated")) == 5)

    rated = runs(stack, "agent = 'rated'")
    # From when they were there: on a busy machine one may start late, and the next after it in time.
    waited = sorted((run["started_at"] - rated[0]["created_at"]).total_seconds() for run in rated)
    assert all(seconds > 2.95 * (number // 2) for number, seconds in enumerate(waited))


def test_one_run_waits_and_takes_all_events_that_arrived_meanwhile(stack: Stack) -> None:
    [first] = send(stack, "one", 1)
    in_status(stack, first, "running")

    send(stack, "one", 4)

    eventually(lambda: results(stack, "one-waits") == [[0], [0, 1, 2, 3]])


@pytest.mark.sampled
def test_the_latest_event_stops_the_run_before_it(stack: Stack) -> None:
    [first] = send(stack, "latest", 1, seconds=30)
    in_status(stack, first, "running")

    [last] = send(stack, "latest", 1, seconds=0)

    with within(8):
        assert in_status(stack, last, "succeeded")
    assert in_status(stack, first, "cancelled")["status_reason"]


def test_two_run_at_once_and_never_three(stack: Stack) -> None:
    send(stack, "two", 8)
    most = 0

    def done() -> bool:
        nonlocal most
        live = runs(stack, "agent = 'two-at-once' AND status = 'running'")
        most = max(most, len(live))
        return len(runs(stack, "agent = 'two-at-once' AND status = 'succeeded'")) == 8

    eventually(done, every=0.01)

    assert most == 2


def test_a_coroutine_is_stopped_at_its_timeout_and_its_worker_lives_on(stack: Stack) -> None:
    [event] = send(stack, "late", 1)

    run = in_status(stack, event, "failed")

    assert run["status_reason"] == "deadline"
    assert not stack.query("SELECT 1 FROM runs_attempt WHERE outcome = 'lost'")
