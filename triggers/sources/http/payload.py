"""A body as stored with an event: its JSON value, or the reason why it has none."""

from dataclasses import dataclass
from typing import Any

from runs.api.strict_json import Unreadable, parse_json, require_storable


@dataclass(frozen=True, kw_only=True)
class Payload:
    """A body's JSON value, or the reason why it has none."""

    data: Any = None
    error: str = ""


def read_payload(body: bytes) -> Payload:
    """The body's JSON value; a body that is not JSON is kept raw, with the reason."""
    if not body:
        return Payload()
    try:
        value = parse_json(body)
        require_storable(value)
    except Unreadable as reason:
        return Payload(error=f"kept raw: {reason}")
    return Payload(data=value)
