"""A model whose answers, use and failures a test sets."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from pydantic_ai import Agent as LlmAgent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RequestUsage

from runs.models import ModelPrice


class PaidModel:
    """Answers its turns in order, each a text, calls of tools, or an exception, and reports so many tokens for each. With
    the default price an output token costs a cent and input nothing."""

    def __init__(self, *turns: Any, output_tokens: int = 10, max_tokens: int = 20, name: str = "paid") -> None:
        self.turns = turns
        self.requests = 0
        self.output_tokens = output_tokens
        self.bounds: list[int | None] = []
        self.model = FunctionModel(
            self._answer, model_name=name, settings=ModelSettings(max_tokens=max_tokens) if max_tokens else None
        )
        self.meanwhile: Callable[[], None] = lambda: None

    def agent(self, name: str = "clerk") -> LlmAgent[None, str]:
        return LlmAgent(self.model, name=name)

    def _answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.requests += 1
        self.bounds.append((info.model_settings or {}).get("max_tokens"))
        self.meanwhile()
        turn = self.turns[sum(isinstance(message, ModelResponse) for message in messages)]
        if isinstance(turn, Exception):
            raise turn
        parts: Any = [TextPart(turn)] if isinstance(turn, str) else [ToolCallPart(*call) for call in turn]
        return ModelResponse(parts=parts, usage=RequestUsage(input_tokens=100, output_tokens=self.output_tokens))


def price(model: str = "paid", *, input: str = "0", output: str = "10000") -> ModelPrice:
    """In dollars for a million tokens: a cent for an output token."""
    return ModelPrice.objects.create(model=model, input=Decimal(input), output=Decimal(output))
