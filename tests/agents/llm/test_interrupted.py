"""A call of run.llm that is cut short: by its deadline, by a tool that parks the run beside others, many times over."""

import asyncio
import os
import threading
import time
from functools import partial
from typing import Any

import psutil
import pytest
from pydantic_ai import Agent as LlmAgent

from agents import AgentRun, AsyncAgentRun
from agents.agent import Agent
from agents.testing import run_agent
from runs.actions.resolve import resolve
from runs.models import Attempt, Step
from tests.support.durable import Lab, lab
from tests.support.stack import eventually
from tests.support.wire import Call, Held, Turn, Wire

__all__ = ["lab"]

pytestmark = pytest.mark.django_db(transaction=True)

MODEL = "openai-chat:gpt-4o"
ask_providers = partial(run_agent, may_ask_providers=True)


@pytest.fixture(autouse=True)
def quiet_loops(caplog: pytest.LogCaptureFixture) -> Any:
    """Loops that end leave nothing behind that asyncio complains of."""
    yield
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


@pytest.mark.parametrize("is_async", [False, True])
def test_a_request_in_flight_at_the_deadline_is_cut_and_the_run_fails(lab: Lab, wire: Wire, is_async: bool) -> None:
    wire.script("hello", Turn("hello", faults=[Held()]))
    llm = LlmAgent(MODEL, name="greeter")

    async def ask(run: AsyncAgentRun) -> str:
        return str((await run.llm(llm, wire.prompt("hello", "one"))).output)

    def ask_plainly(run: AgentRun) -> str:
        return str(run.llm(llm, wire.prompt("hello", "one")).output)

    run = lab.run(ask if is_async else ask_plainly, policy={"timeout": 2.0, "retries": 3})

    assert (run.status, run.status_reason) == ("failed", "deadline")
    assert "timeout of 2 s" in run.error
    assert [attempt.outcome for attempt in Attempt.objects.filter(run=run)] == ["deadline"]
    eventually(lambda: [request.end for request in wire.of("one")] == ["left"])


@pytest.mark.parametrize("is_async", [False, True])
def test_a_tool_that_parks_the_run_does_not_stop_those_beside_it_half_way(lab: Lab, wire: Wire, is_async: bool) -> None:
    wire.script("pay", [Call("ring"), Call("pay"), Call("count")], "done")
    llm, called = LlmAgent(MODEL, name="payer"), []
    begun: list[str] = []

    @llm.tool_plain(metadata={"effect": "at_most_once"})
    async def ring() -> str:
        called.append("ring")
        while len(begun) < 2:
            await asyncio.sleep(0.01)
        raise ConnectionError("no answer")

    @llm.tool_plain
    async def pay() -> str:
        begun.append("pay")
        await asyncio.sleep(0.3)
        called.append("pay")
        return "paid"

    @llm.tool_plain
    async def count() -> str:
        begun.append("count")
        await asyncio.to_thread(time.sleep, 0.3)
        called.append("count")
        return "counted"

    async def ask(run: AsyncAgentRun) -> str:
        return str((await run.llm(llm, wire.prompt("pay", "one"))).output)

    def ask_plainly(run: AgentRun) -> str:
        return str(run.llm(llm, wire.prompt("pay", "one")).output)

    run = lab.run(ask if is_async else ask_plainly)

    assert run.status == "uncertain"
    statuses = dict(Step.objects.filter(kind="tool").values_list("key", "status"))
    assert {key.partition(":")[2].split()[0]: status for key, status in statuses.items()} == {
        "ring": "started",
        "pay": "done",
        "count": "done",
    }
    resolve(run.id, outcome="happened", result="rung", by="ann")
    run = lab.go_on(run)
    assert (run.status, run.result) == ("succeeded", "done")
    assert sorted(called) == ["count", "pay", "ring"]
    assert wire.asked("one") == {0: 1, 1: 1}


def test_calls_leave_no_threads_and_no_connections_behind(wire: Wire) -> None:
    wire.script("sums", [Call("add", a=1), Call("add", a=2)], "3")
    llm = LlmAgent(MODEL, name="sums")

    @llm.tool_plain
    def add(a: int) -> int:
        return a

    def body(run: AgentRun) -> None:
        for number in range(10):
            run.llm(llm, wire.prompt("sums", number))

    agent = Agent(name="asker", body=body, durable=True)
    ask_providers(agent)
    process = psutil.Process(os.getpid())
    clients = [connection for connection in process.net_connections() if connection.raddr]
    ours = [one for one in clients if wire.url.endswith(f":{one.raddr.port}") and one.status == "ESTABLISHED"]
    threads = threading.active_count()
    ask_providers(agent)

    assert ours == []
    # Those of the provider, which serve a connection each, end when they hear that it was closed.
    eventually(lambda: threading.active_count() <= threads)
