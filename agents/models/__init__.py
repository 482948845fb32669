from .state import AgentState, taint_values

__all__ = ["AgentState", "taint_values"]
