"""The usage of a model request, as its step keeps it: tokens, and the price where it is known."""

from typing import Any

from pydantic_ai.durable_exec import JSON_CODEC
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import Model

from agents.llm.costs.prices import Prices, is_measured
from agents.llm.providers.failures import was_uncharged

TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


def usage_of_recorded(recorded: Any, asked: Model, prices: Prices) -> dict[str, Any]:
    """`recorded` is a ModelResponse as JSON, or the record of a streamed one."""
    return usage_of(JSON_CODEC.load(ModelResponse, recorded.get("response", recorded)), asked, prices)


def usage_of(response: ModelResponse, asked: Model, prices: Prices) -> dict[str, Any]:
    """`cost` is in US dollars, a decimal as text, None where the price of the model is not known; `is_measured` is
    false where the provider reported no usage; `may_be_more` is true where a model that failed before this one
    (FallbackModel) may have charged as well.
    """
    cost = prices.of_response(response, asked)
    may_be_more = not all(was_uncharged(attempt) for attempt in response.failed_attempts or ())
    return {
        "model": response.model_name or "",
        "provider": response.provider_name or "",
        **{name: getattr(response.usage, name) for name in TOKENS},
        "is_measured": is_measured(response),
        "cost": None if cost is None else f"{cost:f}",
        **({"may_be_more": True} if may_be_more else {}),
    }
