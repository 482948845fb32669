"""The LLM agent that is measured, in all three ways alike. Without Django."""

from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from typing import Any

from pydantic_ai import Agent, ModelMessage, ModelRequest, ModelResponse, TextPart, Tool, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import UsageLimits

from bench.ground.names import MODEL

NO_LIMIT = UsageLimits(request_limit=None)  # by itself an agent ends after 50 requests


async def note(number: int) -> int:
    """The tool."""
    return number


async def go_on() -> None:
    pass


def talker(
    name: str,
    *,
    tool: Callable[[int], Awaitable[int]] = note,
    before_end: Callable[[], Awaitable[None]] = go_on,
    capabilities: Sequence[Any] = (),
) -> Agent[None, str]:
    """Its model answers at once, in this process. The prompt is a number of turns: in each the model calls the tool, and in
    one more request it ends."""

    async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        number = len(messages) // 2
        if number < turns_of(messages):
            return ModelResponse(parts=[ToolCallPart("note", {"number": number}, tool_call_id=f"call-{number}")])
        await before_end()
        return ModelResponse(parts=[TextPart("done")])

    return Agent(FunctionModel(answer, model_name=MODEL), name=name, tools=[tool], capabilities=capabilities)


@cache
def thinker() -> Agent[None, str]:
    """Asks whatever model the settings name."""
    return Agent(name="thinker", tools=[Tool(note, metadata={"effect": "read", "trusted": True})])


def turns_of(messages: Sequence[ModelMessage]) -> int:
    match messages[0]:
        case ModelRequest(parts=[UserPromptPart(content=str(turns))]):
            return int(turns)
    raise ValueError(f"no prompt: {messages[0]!r}")
