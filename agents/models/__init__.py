from .checklist import Checklist, ChecklistItem, ChecklistRevision
from .memory import MemoryNote
from .page_file import PageFile
from .prompt_agent import PromptAgent, PromptAgentVersion
from .session import Session, SessionTurn
from .state import AgentState
from .taint import taint_written

__all__ = [
    "AgentState",
    "Checklist",
    "ChecklistItem",
    "ChecklistRevision",
    "MemoryNote",
    "PageFile",
    "PromptAgent",
    "PromptAgentVersion",
    "Session",
    "SessionTurn",
    "taint_written",
]
