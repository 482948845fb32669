"""The most that a model request may cost, before it is made."""

from collections.abc import Sequence

from django.conf import settings
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelRequest, ModelResponse, UserPromptPart
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_core import to_json

from agents.journal.budget import Cost
from agents.llm.prices import Prices, models_of

FRAME = 500  # tokens that a provider puts around a request, such as its own instructions for tools
FILE = 10_000  # tokens of a picture or another file, besides its bytes


def worst_case(
    model: Model,
    messages: Sequence[ModelMessage],
    model_settings: ModelSettings | None,
    parameters: ModelRequestParameters,
    prices: Prices,
) -> Cost:
    """Each of several models (FallbackModel) may charge the request before the next one is asked."""
    input_tokens = _input_at_most(model, messages, parameters)
    output_tokens = output_at_most(model, model_settings)
    return Cost(
        usd=prices.at_most(model, input_tokens, output_tokens),
        tokens=(input_tokens + output_tokens) * len(list(models_of(model))),
        requests=1,
        model=model.model_name,
    )


def output_at_most(model: Model, model_settings: ModelSettings | None) -> int:
    """The `max_tokens` of the request or of its model, else WAKEFUL_OUTPUT_TOKENS."""
    own = [(each.settings or {}).get("max_tokens") for each in models_of(model)]
    asked = (model_settings or {}).get("max_tokens") or (own[0] if len(own) == 1 else None)
    bound: int = asked or settings.WAKEFUL_OUTPUT_TOKENS
    return bound


def _input_at_most(model: Model, messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> int:
    """A token stands for a byte at least. What the last response of this model has counted need not be guessed again."""
    fixed = FRAME + len(to_json(parameters, fallback=repr))
    known, rest = _counted(model, messages)
    return min(fixed + _bytes(messages), known + fixed + _bytes(rest)) if known else fixed + _bytes(messages)


def _counted(model: Model, messages: Sequence[ModelMessage]) -> tuple[int, Sequence[ModelMessage]]:
    """The tokens of the conversation up to the last response, and the messages behind it."""
    for number in range(len(messages) - 1, -1, -1):
        message = messages[number]
        if isinstance(message, ModelResponse):
            if message.model_name != model.model_name or not message.usage.input_tokens:
                break
            return message.usage.input_tokens + message.usage.output_tokens, messages[number + 1 :]
    return 0, messages


def _bytes(messages: Sequence[ModelMessage]) -> int:
    return len(ModelMessagesTypeAdapter.dump_json(list(messages))) + FILE * sum(
        not isinstance(content, str)
        for message in messages
        if isinstance(message, ModelRequest)
        for part in message.parts
        if isinstance(part, UserPromptPart) and not isinstance(part.content, str)
        for content in part.content
    )
