"""A gate for agents that look at a checklist with plain code: quiet unless an item is due."""

from agents.gate import Fire, Quiet
from agents.gate_run import GateRun


def due_items(run: GateRun) -> Fire | Quiet:
    seen = run.checklist.state()
    if seen.silenced_until:
        return Quiet(f"its checklist is silenced until {seen.silenced_until:%Y-%m-%d %H:%M} UTC")
    if not seen.items:
        return Quiet("its checklist is empty: enter what it is to look at")
    if not seen.due:
        return Quiet("no item is due")
    return Fire(f"{len(seen.due)} items are due")
