"""Types of events that only Wakeful itself records, each by one built-in source. Whatever reads an event of such a type
relies on that, so every other way in refuses it."""

from collections.abc import Mapping

SIGNAL = "run.signal"
RESERVED: Mapping[str, str] = {
    SIGNAL: "manual",
    "run.wakeup": "wakeup",
    "schedule.fired": "schedule",
    "manual.fired": "manual",
}
PREFIX = "wakeful."  # for types to come, so that no sender's own collides with one


def is_reserved(type: str) -> bool:
    return type in RESERVED or type.startswith(PREFIX)


def refusal(type: str) -> str:
    return f"{type} is reserved for events that Wakeful records itself; use another type"
