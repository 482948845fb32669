"""Journaled models in a graph: each recorded answer is paid once, budgets and taint see it, and other models are refused."""

import asyncio
from typing import Any

import pytest

pytest.importorskip("langgraph")

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import RetryPolicy
from pydantic import BaseModel

from agents import AgentRun, AsyncAgentRun, Permanent
from agents.exceptions import StepFailed
from agents.graphs import journaled
from agents.guards.addresses import networks_of
from agents.kernel import connecting
from agents.kernel.connecting import Lease, MayUse
from agents.testing import Journal, assert_replays, run_agent
from tests.agents.graphs.models import durable, scripted
from tests.support.oauth_server import providing_tokens

pytestmark = pytest.mark.django_db


def one_node(node: Any, **options: Any) -> Any:
    state: Any = dict
    builder = StateGraph(state)
    builder.add_node("node", node, **options)
    builder.add_edge(START, "node")
    return builder.compile()


def walking(node: Any, **options: Any) -> Any:
    return durable(lambda run: run.graph(one_node(node, **options), {"q": 1}))


def test_an_answer_is_a_step_with_its_usage() -> None:
    inner = scripted("four")
    done = run_agent(walking(lambda state: {"said": journaled(inner).invoke("2 + 2?").text}))

    assert done.result == {"said": "four"}
    [key] = [key for key in done.journal.keys if key.endswith(":request 1")]
    assert key.startswith("graph#1:node:")
    assert_replays(done)
    assert len(inner.asked) == 1


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("after", [1, 2, 3])
def test_a_node_that_is_executed_again_is_given_what_is_recorded(is_async: bool, after: int) -> None:
    inner, executions = scripted(lambda text: f"{text}!"), [0]
    model = journaled(inner)

    def breaks(said: list[str]) -> bool:
        return executions[0] == 1 and len(said) == after

    def node(state: Any) -> Any:
        executions[0] += 1
        said: list[str] = []
        for text in ("a", "b", "c"):
            said.append(model.invoke(text).text)
            if breaks(said):
                raise OSError("again")
        return {"said": said}

    async def anode(state: Any) -> Any:
        executions[0] += 1
        said: list[str] = []
        for text in ("a", "b", "c"):
            said.append((await model.ainvoke(text)).text)
            if breaks(said):
                raise OSError("again")
        return {"said": said}

    async def body(run: AsyncAgentRun) -> Any:
        return await run.graph(one_node(anode), {"q": 1})

    agent, journal = durable(body) if is_async else walking(node), Journal()
    with pytest.raises(OSError, match="again"):
        run_agent(agent, journal=journal)
    assert len(inner.asked) == after

    done = run_agent(agent, journal=journal)

    assert done.result == {"said": ["a!", "b!", "c!"]}
    assert_replays(done)
    assert len(inner.asked) == 3


def test_a_retry_of_a_node_pays_nothing_again() -> None:
    inner, tries = scripted("so"), []

    def node(state: Any) -> Any:
        said = journaled(inner).invoke("well?").text
        tries.append(said)
        if len(tries) < 3:
            raise OSError("not now")
        return {"said": said}

    policy = RetryPolicy(max_attempts=3, initial_interval=0.01, retry_on=OSError)
    done = run_agent(walking(node, retry_policy=policy))

    assert done.result == {"said": "so"} and len(tries) == 3 and len(inner.asked) == 1


def test_requests_of_one_node_beside_each_other_are_told_apart_by_their_prompts() -> None:
    inner = scripted(lambda text: f"{text}!")
    model, turn = journaled(inner), [0]

    async def node(state: Any) -> Any:
        texts = ["a", "b", "c"]
        turn[0] += 1
        if turn[0] == 2:
            texts.reverse()
        said = await asyncio.gather(*(model.ainvoke(text) for text in texts))
        if turn[0] == 1:
            raise OSError("again")
        return {
            "said": sorted(one.text for one in said),
            "pairs": [[t, m.text] for t, m in zip(texts, said, strict=True)],
        }

    async def body(run: AsyncAgentRun) -> Any:
        return await run.graph(one_node(node), {"q": 1})

    journal = Journal()
    with pytest.raises(OSError, match="again"):
        run_agent(durable(body), journal=journal)
    done = run_agent(durable(body), journal=journal)

    assert done.result["pairs"] == [["c", "c!"], ["b", "b!"], ["a", "a!"]]
    assert len(inner.asked) == 3


def test_a_changed_prompt_is_given_the_answer_that_is_paid() -> None:
    inner, turn = scripted(lambda text: f"{text}!"), [0]

    def node(state: Any) -> Any:
        turn[0] += 1
        said = journaled(inner).invoke(f"at {turn[0]}").text
        if turn[0] == 1:
            raise OSError("again")
        return {"said": said}

    agent, journal = walking(node), Journal()
    with pytest.raises(OSError):
        run_agent(agent, journal=journal)

    assert run_agent(agent, journal=journal).result == {"said": "at 1!"}
    assert len(inner.asked) == 1


@pytest.mark.parametrize("is_async", [False, True])
def test_a_stream_is_given_in_the_pieces_in_which_it_came(is_async: bool) -> None:
    inner = scripted("one two three")

    def node(state: Any) -> Any:
        return {"said": [chunk.text for chunk in journaled(inner).stream("count")]}

    async def anode(state: Any) -> Any:
        return {"said": [chunk.text async for chunk in journaled(inner).astream("count")]}

    async def body(run: AsyncAgentRun) -> Any:
        return await run.graph(one_node(anode), {"q": 1})

    done = run_agent(durable(body) if is_async else walking(node))

    assert [piece for piece in done.result["said"] if piece] == ["one ", "two ", "three "]
    assert_replays(done)
    assert len(inner.asked) == 1


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


def chat(model: Any, trusted: Any = ()) -> Any:
    bound = journaled(model, trusted_tools=trusted).bind_tools([weather])
    builder = StateGraph(MessagesState)
    builder.add_node("model", lambda state: {"messages": [bound.invoke(state["messages"])]})
    builder.add_node("tools", ToolNode([weather]))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", lambda state: "tools" if state["messages"][-1].tool_calls else "__end__")
    builder.add_edge("tools", "model")
    return builder.compile()


def calls_first(text: str) -> Any:
    if text.startswith("sunny"):
        return f"It is {text}."
    return AIMessage("", tool_calls=[{"name": "weather", "args": {"city": "Graz"}, "id": "call-1"}])


def test_tools_are_bound_and_called() -> None:
    inner = scripted(calls_first)
    body = lambda run: run.graph(chat(inner), {"messages": [HumanMessage("Graz?")]})["messages"][-1].text  # noqa: E731

    done = run_agent(durable(body))

    assert done.result == "It is sunny in Graz."
    assert inner.asked[0]["tools"] == [{"name": "weather"}]
    assert_replays(done)
    assert len(inner.asked) == 2


def test_the_result_of_a_tool_taints_the_run_unless_it_is_trusted() -> None:
    def tainted(trusted: Any) -> bool:
        app = chat(scripted(calls_first), trusted)
        return run_agent(
            durable(lambda run: len(run.graph(app, {"messages": [HumanMessage("?")]})["messages"]))
        ).is_tainted

    assert tainted(()) and not tainted(["weather"])


def test_a_run_that_strangers_woke_is_tainted_by_its_first_request() -> None:
    agent = walking(lambda state: {"said": journaled(scripted()).invoke("?").text})

    assert run_agent(agent, from_strangers=True).is_tainted
    assert not run_agent(agent).is_tainted


def test_a_tool_beyond_the_cap_is_neither_offered_nor_called() -> None:
    inner = scripted(calls_first)
    body = lambda run: len(run.graph(chat(inner), {"messages": [HumanMessage("?")]})["messages"])  # noqa: E731

    with pytest.raises((Permanent, StepFailed), match="beyond the tool cap"):
        run_agent(durable(body, tools=["other"]))

    assert inner.asked[0]["tools"] == []


class Verdict(BaseModel):
    urgent: bool


def test_a_structured_output_is_no_tool_of_the_cap() -> None:
    inner = scripted(AIMessage("", tool_calls=[{"name": "Verdict", "args": {"urgent": True}, "id": "call-1"}]))
    model = journaled(inner).with_structured_output(Verdict)

    done = run_agent(
        durable(
            lambda run: run.graph(one_node(lambda state: {"said": model.invoke("?").urgent}), {"q": 1}), tools=["other"]
        )
    )

    assert done.result == {"said": True} and len(inner.asked[0]["tools"]) == 1
    assert_replays(done)


def test_a_model_that_is_not_journaled_is_refused_in_a_graph() -> None:
    inner = scripted()

    with pytest.raises(Permanent, match="Wrap it"):
        run_agent(walking(lambda state: {"said": inner.invoke("?", config={"callbacks": []}).text}))

    assert not inner.asked


def test_a_model_in_a_step_of_a_node_is_recorded_there() -> None:
    inner = scripted("so")

    def body(run: AgentRun) -> Any:
        def node(state: Any) -> Any:
            return {"said": run.step("ask", lambda: str(inner.invoke("?").text), key="1", effect="idempotent")}

        return run.graph(one_node(node), {"q": 1})

    assert run_agent(durable(body)).result == {"said": "so"}


def test_a_journaled_model_is_refused_in_a_body_outside_of_graphs_and_steps() -> None:
    from agents.guards.body import within_body

    with within_body(), pytest.raises(Permanent, match=r"outside of run\.graph"):
        journaled(scripted()).invoke("?")


def test_outside_of_runs_a_journaled_model_is_the_model_itself() -> None:
    inner = scripted("so")

    assert journaled(inner).invoke("?").text == "so"
    assert [one.text for one in journaled(scripted("a b")).stream("?") if one.text] == ["a ", "b "]


def test_a_graph_that_a_node_calls_is_recorded_too() -> None:
    inner = scripted("so")
    sub = one_node(lambda state: {"said": journaled(inner).invoke("?").text})

    done = run_agent(walking(lambda state: sub.invoke(state)))

    assert done.result == {"said": "so"}
    assert_replays(done)
    assert len(inner.asked) == 1


class Refused(Exception):
    status_code = 401


class Busy(Exception):
    status_code = 503


def test_a_request_that_the_provider_refuses_is_not_repeated() -> None:
    inner = scripted(lambda text: Refused("the key is wrong"))

    with pytest.raises(StepFailed, match="the key is wrong") as failed:
        run_agent(walking(lambda state: {"said": journaled(inner).invoke("?").text}))

    assert failed.value.permanent and len(inner.asked) == 1


def test_a_request_to_a_busy_provider_is_made_again() -> None:
    answers = [Busy("later"), Busy("later"), "so"]
    inner = scripted(lambda text: answers.pop(0))

    done = run_agent(walking(lambda state: {"said": journaled(inner).invoke("?").text}))

    assert done.result == {"said": "so"} and len(inner.asked) == 3


def test_secrets_that_this_process_knows_are_taken_out_of_a_request() -> None:
    from agents.kernel.redaction import know

    know("sk-a-secret-of-this-test-0123456789")
    inner = scripted("so")
    run_agent(
        walking(lambda state: {"said": journaled(inner).invoke("my key is sk-a-secret-of-this-test-0123456789").text})
    )

    assert "sk-a-secret" not in inner.asked[0]["messages"][0].text


def test_a_message_keeps_what_its_provider_needs_of_it() -> None:
    thought = AIMessage(
        [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "so"}],
        id="answer-1",
        response_metadata={"model_name": "gpt-4o", "finish_reason": "stop"},
    )
    seen: list[Any] = []

    def node(state: Any) -> Any:
        seen.append(journaled(scripted(thought)).invoke("?"))
        if len(seen) == 1:
            raise OSError("again")
        return {"said": 1}

    agent, journal = walking(node), Journal()
    with pytest.raises(OSError):
        run_agent(agent, journal=journal)
    run_agent(agent, journal=journal)

    assert seen[0] == seen[1] and seen[1].content == thought.content and seen[1].id == "answer-1"


@pytest.mark.parametrize("harmless", [False, True])
def test_in_a_tainted_run_a_step_of_a_tool_only_reads_by_a_connection(
    harmless: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with providing_tokens() as api:
        api.allow(access="token-12345678")
        lease = Lease(token="token-12345678", hosts=[api.host], networks=networks_of(["127.0.0.0/8"]))
        monkeypatch.setattr(connecting._port, "lease", lambda name, /, **how: lease)

        def body(run: AgentRun) -> Any:
            def post() -> int:
                with run.connection("mail", harmless=harmless) as http:
                    return http.post(f"{api.url}/labels").status_code

            @tool("weather")
            def label(city: str) -> str:
                """Label."""
                return f"sunny {run.step('post', post, key=city, effect='idempotent')}"

            def again(state: Any) -> Any:
                return {"messages": [AIMessage(f"{run.step('post', post, key='node', effect='idempotent')}")]}

            model = journaled(scripted(calls_first)).bind_tools([label])
            builder = StateGraph(MessagesState)
            builder.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
            builder.add_node("tools", ToolNode([label], handle_tool_errors=lambda error: f"sunny {error}"))
            builder.add_node("again", again)
            builder.add_edge(START, "model")
            builder.add_edge("model", "tools")
            builder.add_edge("tools", "again")
            said = run.graph(builder.compile(), {"messages": [HumanMessage("?")]})["messages"]
            return [said[-2].text, said[-1].text]

        done = run_agent(durable(body, connections=MayUse(names={"mail": "mail"})), from_strangers=True)

    assert done.is_tainted
    assert ("the step is in a tool that a model has called" in done.result[0]) is not harmless
    assert done.result[1] == "200"
    assert len(api.called) == 1 + harmless
