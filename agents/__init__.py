"""The names an agent author needs: `from agents import AgentRun, agent, on`. The import touches no database."""

from agents.checklists.run_checklist import Checked, DueItem
from agents.heartbeats.heartbeat import Heartbeat
from agents.journal.protocol import Answer, Ended
from agents.kernel.report import Report

from . import on
from .agent import Agent, agent
from .async_run import AsyncAgentRun
from .budget import Budget
from .exceptions import ApprovalExpired, ChildFailed, Permanent, Retry, SessionBusy, StepFailed
from .gate import Fire, Quiet
from .gate_run import GateRun
from .memory import Note
from .run import AgentRun, Event
from .tools.toolbox import tool

__all__ = [
    "Agent",
    "AgentRun",
    "Answer",
    "ApprovalExpired",
    "AsyncAgentRun",
    "Budget",
    "Checked",
    "ChildFailed",
    "DueItem",
    "Ended",
    "Event",
    "Fire",
    "GateRun",
    "Heartbeat",
    "Note",
    "Permanent",
    "Quiet",
    "Report",
    "Retry",
    "SessionBusy",
    "StepFailed",
    "agent",
    "on",
    "tool",
]
