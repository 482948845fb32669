"""Models that say what a test wrote down for them."""

from typing import Any

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel


class Turns:
    """A model that answers its turns one after the other: texts, ("thought", "text") or lists of calls of tools."""

    def __init__(self, *turns: Any) -> None:
        self.turns = turns
        self.asked = 0
        self.model = FunctionModel(self.answer, model_name="scripted")

    def answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.asked += 1
        number = sum(isinstance(message, ModelResponse) for message in messages)
        match self.turns[number]:
            case str() as text:
                return ModelResponse(parts=[TextPart(text)])
            case (str() as thought, str() as text):
                return ModelResponse(parts=[ThinkingPart(thought), TextPart(text)])
            case calls:
                return ModelResponse(
                    parts=[ToolCallPart(name, given, f"call-{number}-{n}") for n, (name, given) in enumerate(calls)]
                )
