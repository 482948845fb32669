"""The provider of the tests, called by pydantic-ai's real clients: each wire format, plain and streamed."""

import asyncio
from typing import Any

import pytest
from pydantic_ai import Agent, ModelRequestNode
from pydantic_ai.messages import ModelResponse

from tests.support.examples import some_cases
from tests.support.wire import Call, Turn, Wire

FORMATS = {
    "openai-chat:gpt-4o": "/v1/chat/completions",
    "openai-responses:gpt-4o": "/v1/responses",
    "openai:gpt-4o": "/v1/responses",
    "ollama:llama3": "/v1/chat/completions",
    "anthropic:claude-sonnet-4-6": "/v1/messages",
}


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("model", some_cases(FORMATS))
def test_a_client_reads_calls_text_and_usage(wire: Wire, model: str, is_streamed: bool) -> None:
    wire.script("sums", [Call("add", a=1, b=2), Call("add", a=3, b=4)], [Call("add", a=3, b=7)], "10")
    # Without a bound the client of Anthropic streams each request: its answer might take long.
    agent, added = Agent(model, model_settings={"max_tokens": 1000}), []

    @agent.tool_plain
    def add(a: int, b: int) -> int:
        added.append((a, b))
        return a + b

    result = asyncio.run(ask(agent, wire.prompt("sums", "one"), is_streamed))

    assert result.output == "10"
    assert sorted(added) == [(1, 2), (3, 4), (3, 7)]
    assert (result.usage.requests, result.usage.input_tokens, result.usage.output_tokens) == (3, 300, 60)
    assert {request.path for request in wire.of("one")} == {FORMATS[model]}
    assert {bool(request.body.get("stream")) for request in wire.of("one")} == {is_streamed}
    assert wire.asked("one") == wire.paid("one") == {0: 1, 1: 1, 2: 1}


async def ask(agent: Agent[None, str], prompt: str, is_streamed: bool = False, history: Any = None) -> Any:
    async with agent, agent.iter(prompt, message_history=history) as run:
        async for node in run:
            if is_streamed and isinstance(node, ModelRequestNode):
                async with node.stream(run.ctx) as stream:
                    async for _ in stream:
                        pass
    return run.result


@pytest.mark.parametrize("model", FORMATS)
def test_a_prompt_behind_a_history_begins_a_script_of_its_own(wire: Wire, model: str) -> None:
    wire.script("first", [Call("look")], "seen")
    wire.script("second", Turn("again"))
    agent = Agent(model)

    @agent.tool_plain
    def look() -> str:
        return "[script first not-a-prompt]"

    first = asyncio.run(ask(agent, wire.prompt("first", "one")))
    second = asyncio.run(ask(agent, wire.prompt("second", "two"), history=first.all_messages()))

    assert (first.output, second.output) == ("seen", "again")
    assert sum(isinstance(message, ModelResponse) for message in second.all_messages()) == 3
    assert (wire.asked("one"), wire.asked("two")) == ({0: 1, 1: 1}, {0: 1})
