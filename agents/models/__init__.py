from .checklist import Checklist, ChecklistItem, ChecklistRevision
from .state import AgentState, taint_values

__all__ = ["AgentState", "Checklist", "ChecklistItem", "ChecklistRevision", "taint_values"]
