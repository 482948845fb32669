"""The agents that this process has code for, by name. Importing the `agents.py` of each installed app fills it."""

from typing import TYPE_CHECKING

from .exceptions import DeclarationError

if TYPE_CHECKING:
    from .agent import Agent

_agents: dict[str, "Agent"] = {}


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


def get(name: str) -> "Agent":
    """The agent of that name; KeyError if this process has no code for it."""
    return _agents[name]


def all_agents() -> list["Agent"]:
    return [_agents[name] for name in sorted(_agents)]
