"""Provider-run tools that model settings add outside of the request's tool list: the tool cap would not cover them, and
their results would not taint the run.
"""

from collections.abc import Mapping
from typing import Any

from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings

from agents.exceptions import Permanent
from agents.llm.providers.serving import models_of

SETTING = "openai_native_tools"
OF_THE_BODY = {"tools", "mcp_servers", "plugins", "web_search_options", "search_parameters"}


def require_none(model: Model, settings: ModelSettings | None) -> None:
    """Raises Permanent if the settings of the request or of its model add such tools."""
    for given in (settings, *(each.settings for each in models_of(model))):
        said: Mapping[str, Any] = given or {}
        body = said.get("extra_body")
        hidden = [SETTING] if said.get(SETTING) else sorted(OF_THE_BODY & set(body if isinstance(body, dict) else ()))
        if hidden:
            raise Permanent(
                f"model settings: {hidden[0]} brings tools past the tool cap and the taint of the run. Give the agent the tool itself, as "
                "by capabilities=[NativeTool(WebSearchTool())]"
            )
