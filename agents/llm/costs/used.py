"""What a recorded request counts for caps. The web process reads it too, and does without pydantic-ai."""

from collections.abc import Mapping
from typing import Any


def used_by(usage: Mapping[str, Any]) -> dict[str, Any]:
    """The amount of each measure; a measure that is missing or None is not known."""
    if usage.get("may_be_more"):
        return {"requests": 1}
    measured = usage.get("is_measured", True)
    tokens = usage["input_tokens"] + usage["output_tokens"]
    return {"usd": usage["cost"], "tokens": tokens if measured else None, "requests": 1}
