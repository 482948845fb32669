"""What an agent author imports: `from agents import AgentRun, agent, on`. Importing it touches no database."""

from . import on
from .agent import Agent, agent
from .async_run import AsyncAgentRun
from .exceptions import ApprovalExpired, ChildFailed, Permanent, Retry, StepFailed
from .journal import Answer, Ended
from .run import AgentRun, Event

__all__ = [
    "Agent",
    "AgentRun",
    "Answer",
    "ApprovalExpired",
    "AsyncAgentRun",
    "ChildFailed",
    "Ended",
    "Event",
    "Permanent",
    "Retry",
    "StepFailed",
    "agent",
    "on",
]
