"""What a model request used, as its step keeps it: tokens, and the price where it is known."""

from typing import Any

from pydantic_ai.durable_exec import JSON_CODEC
from pydantic_ai.messages import ModelResponse

TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


def usage_of(recorded: Any) -> dict[str, Any]:
    """`recorded` is a ModelResponse as JSON, or the record of a streamed one. `cost` is in US dollars, a decimal as text,
    None where the price of the model is not known."""
    response: ModelResponse = JSON_CODEC.load(ModelResponse, recorded.get("response", recorded))
    return {
        "model": response.model_name or "",
        "provider": response.provider_name or "",
        **{name: getattr(response.usage, name) for name in TOKENS},
        "cost": cost_of(response),
    }


def cost_of(response: ModelResponse) -> str | None:
    try:
        return str(response.cost().total_price)
    except (LookupError, ValueError, AssertionError):
        return None
