"""Prompt agents for tests."""

from typing import Any

from agents.models import PromptAgent
from agents.prompt_agents.definition import Definition
from triggers.prompt_agents.edit import create_prompt_agent

SAYS = "Look at failed runs and tell me what to fix first."


def make_prompt_agent(name: str = "triage", *, by: str = "ada", **fields: Any) -> PromptAgent:
    more = {key: fields.pop(key) for key in ("when", "checklist", "budget") if key in fields}
    return create_prompt_agent(name, Definition(**{"instructions": SAYS, **fields}), **more, by=by)
