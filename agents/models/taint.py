from collections.abc import Sequence

from .memory import MemoryNote
from .state import AgentState


def taint_written(agent: str, *, values: Sequence[str], notes: Sequence[str]) -> None:
    """Call in the transaction that wrote the state values of these names and the notes of these keys."""
    if values:
        AgentState.objects.filter(agent=agent, name__in=values).update(is_tainted=True)
    if notes:
        MemoryNote.objects.filter(agent=agent, key__in=notes).update(is_tainted=True)
