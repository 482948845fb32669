"""Reminders of an agent to itself: a wake of its own trigger whose event carries a text."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from agents.kernel.reserved_types import WAKEUP
from agents.run import AgentRun, Event

FIELD = "reminder"  # key in the event's data


@dataclass(frozen=True, kw_only=True)
class Reminder:
    """A text that an earlier run left; `is_tainted`: that run had seen untrusted data, which may have caused it."""

    text: str
    is_tainted: bool


def remind(run: AgentRun, after: timedelta, text: str) -> None:
    """Wake the run's own trigger after this time. The event's data is that of this run's event, with the text."""
    run.wake_in(after, {FIELD: text}, reason=text[:200])


def reminders_of(events: Sequence[Event]) -> list[Reminder]:
    """The texts of the reminders among these events. Wakeful alone records events of that type, so no sender can make one."""
    return [
        Reminder(text=event.data[FIELD], is_tainted=event.is_tainted)
        for event in events
        if event.type == WAKEUP and isinstance(event.data, dict) and isinstance(event.data.get(FIELD), str)
    ]
