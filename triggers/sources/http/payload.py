"""A body as stored with an event: its JSON value, or the reason why it has none."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from runs.api.strict_json import Unreadable, parse_json, require_storable

FORM = "application/x-www-form-urlencoded"
MOST_FIELDS = 1000
MOST_ESCAPES = 2_000_000  # such as %41, of a form that is read before its sender is proved: less than a second's work


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


def read_form(body: bytes) -> Payload:
    """The fields of a form as an object, repeated ones as lists; a body that is no such form is kept raw, with the reason."""
    if not body:
        return Payload()
    try:
        fields = parse_qs(body.decode("ascii"), True, strict_parsing=True, errors="strict", max_num_fields=MOST_FIELDS)
        data = {name: values[0] if len(values) == 1 else values for name, values in fields.items()}
        require_storable(data)
    except Unreadable as reason:
        return Payload(error=f"kept raw: {reason}")
    except ValueError:
        return Payload(error=f"kept raw: not a form of at most {MOST_FIELDS:,} fields")
    return Payload(data=data)
