"""Tools of a provider that model settings bring, past the list of the request: no tool cap would hold for them, and what they read would
not taint."""

from collections.abc import Mapping
from typing import Any

from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings

from agents.exceptions import Permanent
from agents.llm.prices import models_of

SETTING = "openai_native_tools"
OF_THE_BODY = {"tools", "mcp_servers", "plugins", "web_search_options", "search_parameters"}


def require_none(model: Model, settings: ModelSettings | None) -> None:
    """Permanent: the settings of the request or of its model have some."""
    for given in (settings, *(each.settings for each in models_of(model))):
        said: Mapping[str, Any] = given or {}
        body = said.get("extra_body")
        hidden = [SETTING] if said.get(SETTING) else sorted(OF_THE_BODY & set(body if isinstance(body, dict) else ()))
        if hidden:
            raise Permanent(
                f"model settings: {hidden[0]} brings tools past the tool cap and the taint of the run. Give the agent the tool itself, as "
                "by capabilities=[NativeTool(WebSearchTool())]"
            )
