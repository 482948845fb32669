"""Reserved event types: Wakeful alone records them, each by one built-in source. Code that reads such an event relies on this,
so every other source refuses them."""

from collections.abc import Mapping

SIGNAL = "run.signal"
WAKEUP = "run.wakeup"
TICK = "schedule.fired"
FINISHED = (
    "run.finished"  # a report of a run's end; matches only those who name the type, because `*` would match its own end
)
RESERVED: Mapping[str, str] = {
    SIGNAL: "manual",
    WAKEUP: "wakeup",
    TICK: "schedule",
    FINISHED: "run",
    "manual.fired": "manual",
}
GAP = "wakeful.source.gap"  # the source that has the gap; recorded by the process that reads it alone
PREFIX = "wakeful."  # for future types, so that no sender's type collides with one


def is_reserved(type: str) -> bool:
    """Is the type reserved, or does it look like a reserved one to a person: `Run.Signal`, or with a blank at its
    end?
    """
    read = type.strip().lower()
    return read in RESERVED or read.startswith(PREFIX)


def refusal(type: str) -> str:
    return f"{type} is reserved for events that Wakeful records itself; use another type"
