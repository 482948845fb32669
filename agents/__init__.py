"""What an agent author imports: `from agents import AgentRun, agent, on`. Importing it touches no database."""

from . import on
from .agent import Agent, agent
from .exceptions import Permanent, Retry
from .run import AgentRun, Event

__all__ = ["Agent", "AgentRun", "Event", "Permanent", "Retry", "agent", "on"]
