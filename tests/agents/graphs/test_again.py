"""Nodes that a retry policy executes again in the same process, and tasks of nodes: steps and requests are made once."""

from typing import Any

import pytest

pytest.importorskip("langgraph")

from langgraph.func import entrypoint, task
from langgraph.types import RetryPolicy

from agents import AsyncAgentRun, Permanent
from agents.exceptions import StepFailed
from agents.graphs import journaled
from agents.testing import Journal, assert_replays, run_agent
from tests.agents.graphs.models import durable, scripted
from tests.agents.graphs.test_call import State, graph
from tests.agents.graphs.test_models import one_node

pytestmark = pytest.mark.django_db
THREE = RetryPolicy(max_attempts=3, initial_interval=0.01, jitter=False, retry_on=OSError)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_step_is_done_once_although_a_retry_policy_executes_its_node_again(is_async: bool) -> None:
    booked, tries = [], []

    def book() -> int:
        booked.append("trip")
        return len(booked)

    def breaks() -> None:
        tries.append(1)
        if len(tries) < 3:
            raise OSError("not now")

    def plain(run: Any) -> Any:
        def node(state: Any) -> Any:
            said = run.step("book", book, key="the trip")
            breaks()
            return {"said": said}

        return run.graph(one_node(node, retry_policy=THREE), {"q": 1})

    async def coroutine(run: AsyncAgentRun) -> Any:
        async def node(state: Any) -> Any:
            said = await run.step("book", book, key="the trip")
            breaks()
            return {"said": said}

        return await run.graph(one_node(node, retry_policy=THREE), {"q": 1})

    done = run_agent(durable(coroutine if is_async else plain))

    assert done.result == {"said": 1} and booked == ["trip"] and len(tries) == 3
    assert_replays(done)


def test_a_step_that_fails_is_tried_again_by_the_retry_policy_of_its_node() -> None:
    tries: list[int] = []

    def book() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise OSError("not now")
        return "booked"

    def body(run: Any) -> Any:
        policy = THREE._replace(retry_on=StepFailed)
        return run.graph(
            one_node(lambda state: {"said": run.step("book", book, key="1")}, retry_policy=policy), {"q": 1}
        )

    done = run_agent(durable(body))

    assert done.result == {"said": "booked"} and len(tries) == 3
    assert_replays(done)


def test_two_nodes_do_not_share_a_key() -> None:
    def body(run: Any) -> Any:
        def one(state: State) -> State:
            run.step("book", lambda: 1, key="the trip")
            return {}

        def two(state: State) -> State:
            run.step("book", lambda: 2, key="the trip")
            return {}

        return run.graph(graph(one, two), {"done": []})

    with pytest.raises(Permanent, match="used twice"):
        run_agent(durable(body))


def test_one_execution_of_a_node_does_not_use_a_key_twice() -> None:
    def body(run: Any) -> Any:
        def node(state: State) -> State:
            run.step("book", lambda: 1, key="the trip")
            run.step("book", lambda: 2, key="the trip")
            return {}

        return run.graph(graph(node), {"done": []})

    with pytest.raises(Permanent, match="used twice"):
        run_agent(durable(body))


def test_a_step_in_a_coroutine_of_a_graph_needs_a_key_as_a_replay_goes_on_behind_it() -> None:
    async def body(run: AsyncAgentRun) -> Any:
        async def node(state: State) -> State:
            await run.step("book", lambda: 1)
            return {}

        return await run.graph(graph(node), {"done": []})

    with pytest.raises(Permanent, match="needs a key of its own"):
        run_agent(durable(body))


def test_a_node_of_a_subgraph_that_its_own_retry_policy_executes_again_pays_once() -> None:
    inner, tries = scripted("so"), []

    def ask(state: Any) -> Any:
        said = journaled(inner).invoke("well?").text
        tries.append(said)
        if len(tries) < 3:
            raise OSError("not now")
        return {"said": said}

    sub = one_node(ask, retry_policy=THREE)

    done = run_agent(durable(lambda run: run.graph(one_node(lambda state: sub.invoke(state)), {"q": 1})))

    assert done.result == {"said": "so"} and len(tries) == 3 and len(inner.asked) == 1
    assert_replays(done)


@pytest.mark.parametrize("is_async", [False, True])
def test_tasks_that_a_node_calls_are_recorded(is_async: bool) -> None:
    inner, tries = scripted(lambda text: f"{text}!"), []
    model = journaled(inner)

    def breaks() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise OSError("not now")

    @task
    def ask(text: str) -> str:
        return str(model.invoke(text).text)

    @task
    async def ask_async(text: str) -> str:
        return str((await model.ainvoke(text)).text)

    @entrypoint()
    def flow(given: Any) -> list[str]:
        asked = [ask(text) for text in given]
        said = [one.result() for one in asked]
        breaks()
        return said

    @entrypoint()
    async def flow_async(given: Any) -> list[str]:
        asked = [ask_async(text) for text in given]
        said = [await one for one in asked]
        breaks()
        return said

    async def coroutine(run: AsyncAgentRun) -> Any:
        return await run.graph(flow_async, ["a", "b"])

    agent, journal = durable(coroutine if is_async else lambda run: run.graph(flow, ["a", "b"])), Journal()
    with pytest.raises(OSError, match="not now"):
        run_agent(agent, journal=journal)

    done = run_agent(agent, journal=journal)

    assert done.result == ["a!", "b!"] and len(inner.asked) == 2
    assert_replays(done)
