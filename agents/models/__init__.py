from .checklist import Checklist, ChecklistItem, ChecklistRevision
from .memory import MemoryNote
from .session import Session, SessionTurn
from .state import AgentState
from .taint import taint_written

__all__ = [
    "AgentState",
    "Checklist",
    "ChecklistItem",
    "ChecklistRevision",
    "MemoryNote",
    "Session",
    "SessionTurn",
    "taint_written",
]
