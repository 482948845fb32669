"""The agents that this process knows, by name: those in code, and the prompt agents. Importing the `agents.py` of each installed app
fills it; `agents.prompt_agents.catalog` adds the others."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .exceptions import DeclarationError

if TYPE_CHECKING:
    from .agent import Agent

_agents: dict[str, "Agent"] = {}
_prompt_agents: Mapping[str, "Agent"] = {}


def register(agent: "Agent") -> "Agent":
    """Add an agent; DeclarationError if another agent has its name."""
    known = _agents.get(agent.name)
    if known is not None and (known.body.__module__, known.body.__qualname__) != (
        agent.body.__module__,
        agent.body.__qualname__,
    ):
        raise DeclarationError(
            f"two agents are called {agent.name!r}: {known.body.__module__} and {agent.body.__module__}; rename one"
        )
    _agents[agent.name] = agent
    return agent


def know_prompt_agents(agents: Mapping[str, "Agent"]) -> None:
    """Replace the known prompt agents by these. An agent in code takes precedence, so a deploy may add one with the
    name of a prompt agent.
    """
    global _prompt_agents
    _prompt_agents = agents


def get(name: str) -> "Agent":
    """The agent of that name; KeyError if this process does not know one."""
    return _agents[name] if name in _agents else _prompt_agents[name]


def all_agents() -> list["Agent"]:
    known = {**_prompt_agents, **_agents}
    return [known[name] for name in sorted(known)]


def agents_in_code() -> list["Agent"]:
    return [_agents[name] for name in sorted(_agents)]
