"""The most that a model request may cost, before it is made."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from django.conf import settings
from pydantic_ai.messages import (
    BaseToolReturnPart,
    FilePart,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.profiles.anthropic import ANTHROPIC_THINKING_BUDGET_MAP
from pydantic_ai.settings import ModelSettings
from pydantic_core import to_json

from agents.exceptions import Permanent
from agents.journal.budget import Cost
from agents.llm.costs.prices import Prices
from agents.llm.providers.serving import models_of

FRAME = 500  # tokens that a provider puts around a request, such as its own instructions for tools
FILE = 10_000  # tokens of a picture or another file, besides its bytes
ANSWER = 4_096  # tokens left for the answer after the model's thinking
OUTPUT_BOUNDS = ("max_tokens", "max_completion_tokens", "max_output_tokens")  # names of providers


@dataclass(frozen=True)
class Counted:
    """The token count that the model reported for these messages."""

    number: int
    digest: bytes
    tokens: int

    def begins(self, messages: Sequence[ModelMessage]) -> bool:
        """Do these messages begin with the counted ones, unchanged?"""
        return len(messages) > self.number and _digest(messages[: self.number]) == self.digest


def counted(model: Model, messages: Sequence[ModelMessage], response: ModelResponse) -> Counted | None:
    """The tokens that a response reports for the messages it answers; None: it reports none, or it came from another
    model, which counts differently.
    """
    if response.model_name != model.model_name or not response.usage.input_tokens:
        return None
    return Counted(len(messages), _digest(messages), response.usage.input_tokens)


def worst_case(
    model: Model,
    messages: Sequence[ModelMessage],
    model_settings: ModelSettings | None,
    parameters: ModelRequestParameters,
    prices: Prices,
    known: Counted | None = None,
) -> Cost:
    """The most that a request may cost. Each of several models (FallbackModel) may charge it before the next one gets
    it.
    """
    input_tokens = _input_at_most(messages, parameters, known)
    output_tokens = output_at_most(model, model_settings)
    return Cost(
        usd=prices.at_most(model, input_tokens, output_tokens),
        tokens=(input_tokens + output_tokens) * len(list(models_of(model))),
        requests=1,
        model=model.model_name,
    )


def output_at_most(model: Model, model_settings: ModelSettings | None) -> int:
    """The `max_tokens` of the request or of its model, else WAKEFUL_OUTPUT_TOKENS, or more for a model that thinks:
    thinking tokens are output, and providers refuse a bound that leaves no room for the answer.
    """
    own = [(each.settings or {}).get("max_tokens") for each in models_of(model)]
    asked = (model_settings or {}).get("max_tokens") or (own[0] if len(own) == 1 else None)
    if asked and (not isinstance(asked, int) or asked < 0):
        raise Permanent(f"max_tokens of the model settings is {asked!r}: give a whole number above 0, or leave it out")
    thought = max(_thought_at_most({**(each.settings or {}), **(model_settings or {})}) for each in models_of(model))
    bound: int = asked or max(settings.WAKEFUL_OUTPUT_TOKENS, thought + ANSWER if thought else 0)
    return bound


def _thought_at_most(given: Mapping[str, Any]) -> int:
    """The tokens that these settings let a model think. Levels (`thinking="high"`) are those of Anthropic, also for others."""
    own = given.get("anthropic_thinking") or {}
    level = given.get("thinking")
    of_level = ANTHROPIC_THINKING_BUDGET_MAP.get(level, 0) if level else 0
    return int(own.get("budget_tokens") or of_level)


def require_bounded(model: Model, model_settings: ModelSettings | None) -> None:
    """Raises Permanent if `extra_body` removes the output limit from the request."""
    bound = output_at_most(model, model_settings)
    for each in models_of(model):
        body: Any = {**(each.settings or {}), **(model_settings or {})}.get("extra_body")
        for name in OUTPUT_BOUNDS if isinstance(body, dict) else ():
            given = body.get(name)
            if given is not None and (not isinstance(given, int) or not 0 <= given <= bound):
                raise Permanent(
                    f"extra_body of the model settings has {name} {given!r}, and {bound} tokens are reserved for the answer: set "
                    "max_tokens in the model settings themselves"
                )


def _input_at_most(messages: Sequence[ModelMessage], parameters: ModelRequestParameters, known: Counted | None) -> int:
    """The most input tokens: at most one per byte. For messages that the model has already counted, its count is
    used.
    """
    most = FRAME + len(to_json(parameters, fallback=repr))
    if known and known.begins(messages):
        return most + min(_bytes(messages), known.tokens + _bytes(messages[known.number :]))
    return most + _bytes(messages)


def _digest(messages: Sequence[ModelMessage]) -> bytes:
    return sha256(ModelMessagesTypeAdapter.dump_json(list(messages))).digest()


def _bytes(messages: Sequence[ModelMessage]) -> int:
    return len(ModelMessagesTypeAdapter.dump_json(list(messages))) + FILE * sum(
        _files(part) for message in messages for part in message.parts
    )


def _files(part: Any) -> int:
    match part:
        case UserPromptPart():
            return 0 if isinstance(part.content, str) else sum(not isinstance(piece, str) for piece in part.content)
        case BaseToolReturnPart():
            return len(part.files)
        case FilePart():
            return 1
    return 0
