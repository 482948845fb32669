"""Prompt agents for tests."""

from typing import Any

from agents.models import PromptAgent
from agents.prompt_agents.definition import Definition
from agents.tools import toolbox
from agents.tools.draft_mail import draft_mail
from agents.tools.label_mail import label_mail
from triggers.prompt_agents.edit import create_prompt_agent

SAYS = "Look at failed runs and tell me what to fix first."


def make_prompt_agent(name: str = "triage", *, by: str = "ada", **fields: Any) -> PromptAgent:
    more = {key: fields.pop(key) for key in ("when", "checklist", "budget") if key in fields}
    return create_prompt_agent(name, Definition(**{"instructions": SAYS, **fields}), **more, by=by)


def register_mail_tools() -> None:
    """Into a toolbox that has the tools of a test alone."""
    for each in (draft_mail, label_mail):
        toolbox.register(each)
