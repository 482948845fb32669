"""A model that repeats its prompts: for tests of sessions."""

from collections.abc import Sequence
from typing import Any

from pydantic_ai import Agent as LlmAgent
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from agents.models import Session, SessionTurn


class Listener:
    """Answers "re: <prompt>". To a prompt that begins with "look" it calls the tool `look` first; one that begins with "fail"
    raises. `requests` has the texts of each request."""

    def __init__(self) -> None:
        self.requests: list[list[str]] = []
        self.model = FunctionModel(self._answer, model_name="listener")

    def agent(self, name: str = "talker", *, asks: bool = False, **given: Any) -> LlmAgent[Any, Any]:
        """`asks`: the tool requires approval."""
        llm: LlmAgent[Any, Any] = LlmAgent(self.model, name=name, **given)
        tool = llm.tool_plain(name="look", requires_approval=asks, metadata={"effect": "read", "trusted": True})

        @tool
        def look(number: int) -> str:
            return f"seen {number}"

        return llm

    def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.requests.append(texts_of(messages))
        prompt = next(text for text in reversed(self.requests[-1]) if text.startswith("> ")).removeprefix("> ")
        if prompt.startswith("fail"):
            raise ValueError(prompt)
        is_answered = any(isinstance(part, ToolReturnPart) for part in messages[-1].parts)
        if prompt.startswith("look") and not is_answered:
            return ModelResponse(parts=[ToolCallPart("look", {"number": 7}, f"look-{len(messages)}")])
        if info.output_tools:
            [tool] = info.output_tools
            return ModelResponse(parts=[ToolCallPart(tool.name, {"said": f"re: {prompt}"}, f"out-{len(messages)}")])
        return ModelResponse(parts=[TextPart(f"re: {prompt}")])


def texts_of(messages: Sequence[ModelMessage]) -> list[str]:
    """System prompts after "#", prompts after ">", answers, and calls and results of tools."""
    found = []
    for message in messages:
        for part in message.parts:
            match part:
                case SystemPromptPart():
                    found.append(f"# {part.content}")
                case UserPromptPart():
                    found.append(f"> {part.content}")
                case TextPart():
                    found.append(part.content)
                case ToolCallPart():
                    found.append(f"{part.tool_name}({part.args_as_json_str()})")
                case ToolReturnPart():
                    found.append(f"{part.tool_name}: {part.model_response_str()}")
        if isinstance(message, ModelRequest) and message.instructions:
            found.append(f"! {message.instructions}")
    return found


def make_session(name: str = "ops", **rule: Any) -> Session:
    return Session.objects.create(name=name, **rule)


def turns(session: str = "ops") -> list[SessionTurn]:
    return list(SessionTurn.objects.filter(session__name=session, messages__isnull=False))
