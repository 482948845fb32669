"""A body as an event keeps it: its JSON value, or why it has none."""

from dataclasses import dataclass
from typing import Any

from runs.api.strict_json import Unreadable, parse_json, require_storable


@dataclass(frozen=True, kw_only=True)
class Payload:
    """A body's JSON value, or why it has none."""

    data: Any = None
    error: str = ""


def read_payload(body: bytes) -> Payload:
    """The body's JSON value; a body that has none is kept raw and the reason is told."""
    if not body:
        return Payload()
    try:
        value = parse_json(body)
        require_storable(value)
    except Unreadable as reason:
        return Payload(error=f"kept raw: {reason}")
    return Payload(data=value)
