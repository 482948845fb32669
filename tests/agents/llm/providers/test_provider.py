"""`run.llm` with real clients over HTTP: models by settings alone, clients that outlive an event loop, output that has to fit,
toolsets, histories."""

import asyncio
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent as LlmAgent
from pydantic_ai import ModelRetry, RunContext
from pydantic_ai.capabilities import ProcessEventStream
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.toolsets import FunctionToolset
from pytest_django import Settings

from agents import AgentRun, AsyncAgentRun
from agents.agent import Agent
from agents.testing import Crashed, Journal, run_agent
from tests.support.wire import Call, Cut, Status, Turn, Wire

pytestmark = pytest.mark.django_db

CHAT = "openai-chat:gpt-4o"
ask_providers = partial(run_agent, may_ask_providers=True)
FORMATS = [CHAT, "openai-responses:gpt-4o", "anthropic:claude-sonnet-4-6"]


def durable(body: Any) -> Agent:
    return Agent(name="asker", body=body, durable=True)


@pytest.mark.parametrize(
    ("model", "key"),
    [
        (CHAT, "Bearer wire-openai-key"),
        ("openai:gpt-4o", "Bearer wire-openai-key"),
        ("openai-responses:gpt-4o", "Bearer wire-openai-key"),
        ("ollama:llama3.2", "Bearer api-key-not-set"),
        ("anthropic:claude-sonnet-4-6", "Bearer wire-anthropic-key"),
    ],
)
def test_settings_alone_bring_an_agent_to_its_provider(wire: Wire, settings: Settings, model: str, key: str) -> None:
    settings.WAKEFUL_MODEL = model
    wire.script("hello", "hello")

    done = ask_providers(durable(lambda run: run.llm(LlmAgent(name="greeter"), wire.prompt("hello", "one")).output))

    [request] = wire.of("one")
    assert done.result == "hello"
    assert key in (request.headers.get("authorization"), request.headers.get("x-api-key"))


@pytest.mark.parametrize("model", FORMATS)
def test_calls_one_after_the_other_ask_through_clients_of_their_own_loop(wire: Wire, model: str) -> None:
    wire.script("sums", [Call("add", a=1, b=2)], "3")
    llm = LlmAgent(model, name="sums")

    @llm.tool_plain
    def add(a: int, b: int) -> int:
        return a + b

    def body(run: AgentRun) -> list[str]:
        return [run.llm(llm, wire.prompt("sums", number)).output for number in range(3)]

    assert ask_providers(durable(body)).result == ["3", "3", "3"]
    assert ask_providers(durable(body)).result == ["3", "3", "3"]
    assert [wire.asked(number) for number in range(3)] == [{0: 2, 1: 2}] * 3


def test_a_model_is_made_when_it_is_called_where_its_agent_defers_that(wire: Wire) -> None:
    wire.script("hello", "hello")
    llm = LlmAgent(CHAT, name="greeter", defer_model_check=True)

    assert ask_providers(durable(lambda run: run.llm(llm, wire.prompt("hello", "one")).output)).result == "hello"


def test_two_agents_request_a_shared_model_at_once(wire: Wire) -> None:
    wire.script("hello", "hello")
    model = OpenAIChatModel("gpt-4o")
    first, second = LlmAgent(model, name="first"), LlmAgent(model, name="second")

    async def body(run: AsyncAgentRun) -> list[str]:
        results = await asyncio.gather(
            run.llm(first, wire.prompt("hello", "one"), key="one"),
            run.llm(second, wire.prompt("hello", "two"), key="two"),
        )
        return [result.output for result in results]

    assert ask_providers(durable(body)).result == ["hello", "hello"]
    assert ask_providers(durable(body)).result == ["hello", "hello"]


class Verdict(BaseModel):
    urgent: bool


@pytest.mark.parametrize("model", FORMATS)
def test_an_output_that_does_not_fit_is_requested_again_once(wire: Wire, model: str) -> None:
    wire.script("judge", [Call("final_result", urgent="perhaps")], [Call("final_result", urgent=True)])
    llm = LlmAgent(model, name="judge", output_type=Verdict)
    journal = Journal()
    agent = durable(lambda run: run.llm(llm, wire.prompt("judge", "one")).output.urgent)

    assert ask_providers(agent, journal=journal).result is True
    assert ask_providers(agent, journal=journal).result is True
    assert wire.asked("one") == {0: 1, 1: 1}


@pytest.mark.parametrize("model", FORMATS)
def test_on_a_replay_an_output_validator_that_retries_runs_again_and_the_model_is_not_called(
    wire: Wire, model: str
) -> None:
    wire.script("judge", "no", "yes")
    llm = LlmAgent(model, name="judge")

    @llm.output_validator
    def affirm(output: str) -> str:
        if output == "no":
            raise ModelRetry("say yes")
        return output

    journal = Journal()
    agent = durable(lambda run: run.llm(llm, wire.prompt("judge", "one")).output)

    assert ask_providers(agent, journal=journal).result == "yes"
    assert ask_providers(agent, journal=journal).result == "yes"
    assert wire.asked("one") == {0: 1, 1: 1}


def test_an_argument_validator_that_raises_model_retry_is_a_step(wire: Wire) -> None:
    wire.script("find", [Call("find", name="Bob")], [Call("find", name="Ann")], "found")
    llm, checked = LlmAgent(CHAT, name="finder"), []

    def check(ctx: RunContext[Any], name: str) -> None:
        checked.append(name)
        if name == "Bob":
            raise ModelRetry("there is no Bob")

    @llm.tool_plain(args_validator=check)
    def find(name: str) -> str:
        return name

    journal = Journal()
    agent = durable(lambda run: run.llm(llm, wire.prompt("find", "one")).output)

    assert ask_providers(agent, journal=journal).result == "found"
    assert ask_providers(agent, journal=journal).result == "found"
    assert checked == ["Bob", "Ann"]
    assert wire.asked("one") == {0: 1, 1: 1, 2: 1}


def test_the_fallback_models_of_the_settings_are_called_in_turn(wire: Wire, settings: Settings) -> None:
    settings.WAKEFUL_MODEL = CHAT
    settings.WAKEFUL_MODEL_FALLBACKS = ["openai-responses:gpt-4o", "anthropic:claude-sonnet-4-6"]
    wire.script("hello", Turn("hello", faults=[Status(500), Status(429, retry_after=900)]))
    journal = Journal()
    agent = durable(lambda run: run.llm(LlmAgent(name="greeter"), wire.prompt("hello", "one")).output)

    assert ask_providers(agent, journal=journal).result == "hello"
    assert ask_providers(agent, journal=journal).result == "hello"
    assert [request.path for request in wire.of("one")] == ["/v1/chat/completions", "/v1/responses", "/v1/messages"]


@pytest.mark.parametrize("model", FORMATS)
def test_an_answer_whose_parts_are_listened_to_is_streamed_once(wire: Wire, model: str) -> None:
    wire.script("sums", [Call("add", a=1, b=2), Call("add", a=3, b=4)], Turn("10", faults=[Cut()]))
    requests: list[str] = []

    async def listen(ctx: RunContext[Any], events: Any) -> None:
        async for event in events:
            requests.append(event.event_kind)

    llm = LlmAgent(model, name="sums", capabilities=[ProcessEventStream(listen)])

    @llm.tool_plain
    def add(a: int, b: int) -> int:
        return a + b

    journal = Journal()
    agent = durable(lambda run: run.llm(llm, wire.prompt("sums", "one")).output)

    assert ask_providers(agent, journal=journal).result == "10"
    assert ask_providers(agent, journal=journal).result == "10"
    assert wire.asked("one") == {0: 1, 1: 2}
    assert all(request.body["stream"] for request in wire.of("one"))
    assert "function_tool_call" in requests and "final_result" in requests


def test_a_history_goes_in_and_comes_out(wire: Wire) -> None:
    wire.script("first", [Call("look")], "seen")
    wire.script("second", "again")
    llm = LlmAgent(CHAT, name="talker")

    @llm.tool_plain
    def look() -> str:
        return "a cat"

    def body(run: AgentRun) -> Any:
        first = run.llm(llm, wire.prompt("first", "one"))
        second = run.llm(llm, wire.prompt("second", "two"), message_history=first.all_messages())
        return [second.output, len(second.all_messages()), len(second.new_messages())]

    journal = Journal()
    with pytest.raises(Crashed):
        ask_providers(durable(body), journal=journal, crash_after="llm talker#2:request 1")
    done = ask_providers(durable(body), journal=journal)

    assert done.result == ["again", 6, 2]
    assert (wire.asked("one"), wire.asked("two")) == ({0: 1, 1: 1}, {0: 1})
    assert "a cat" in str(wire.of("two")[0].body["messages"])


def test_the_tools_of_a_dynamic_toolset_are_steps(wire: Wire) -> None:
    wire.script("sums", [Call("add", a=1, b=2), Call("add", a=3, b=4)], "10")
    llm, added = LlmAgent(CHAT, name="sums"), []

    def add(a: int, b: int) -> int:
        added.append((a, b))
        return a + b

    @llm.toolset(id="sums")
    def tools(ctx: RunContext[Any]) -> FunctionToolset[Any]:
        return FunctionToolset([add])

    journal = Journal()
    agent = durable(lambda run: run.llm(llm, wire.prompt("sums", "one")).output)

    assert ask_providers(agent, journal=journal).result == "10"
    assert ask_providers(agent, journal=journal).result == "10"
    assert sorted(added) == [(1, 2), (3, 4)]
    assert wire.asked("one") == {0: 1, 1: 1}


SERVER = """
import asyncio
import sys
from pathlib import Path
from mcp.server import MCPServer
server = MCPServer("adder")

@server.tool()
def add(a: int, b: int) -> int:
    with Path(sys.argv[1]).open("a") as calls:
        calls.write(f"{a}+{b} ")
    return a + b

server.run()
"""


def test_the_tools_of_an_mcp_server_are_steps(wire: Wire, tmp_path: Path) -> None:
    from fastmcp.client.transports import StdioTransport
    from pydantic_ai.mcp import MCPToolset

    wire.script("sums", [Call("add", a=1, b=2), Call("add", a=3, b=4)], "10")
    (tmp_path / "server.py").write_text(SERVER)
    calls = tmp_path / "calls"
    transport = StdioTransport(sys.executable, [str(tmp_path / "server.py"), str(calls)], keep_alive=False)
    llm = LlmAgent(CHAT, name="sums", toolsets=[MCPToolset(transport, id="adder", init_timeout=60)])
    journal = Journal()
    agent = durable(lambda run: run.llm(llm, wire.prompt("sums", "one")).output)

    assert ask_providers(agent, journal=journal).result == "10"
    assert ask_providers(agent, journal=journal).result == "10"
    assert sorted(calls.read_text().split()) == ["1+2", "3+4"]
    assert wire.asked("one") == {0: 1, 1: 1}
