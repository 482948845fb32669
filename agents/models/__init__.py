from .state import AgentState

__all__ = ["AgentState"]
