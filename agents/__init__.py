"""The names an agent author needs: `from agents import AgentRun, agent, on`. The import touches no database."""

from agents.journal.protocol import Answer, Ended

from . import on
from .agent import Agent, agent
from .async_run import AsyncAgentRun
from .budget import Budget
from .exceptions import ApprovalExpired, ChildFailed, Permanent, Retry, StepFailed
from .run import AgentRun, Event

__all__ = [
    "Agent",
    "AgentRun",
    "Answer",
    "ApprovalExpired",
    "AsyncAgentRun",
    "Budget",
    "ChildFailed",
    "Ended",
    "Event",
    "Permanent",
    "Retry",
    "StepFailed",
    "agent",
    "on",
]
