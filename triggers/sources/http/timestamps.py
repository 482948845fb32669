"""Timestamps as CloudEvents and most webhooks write them."""

import re
from datetime import UTC, datetime

from agents.instants import parse_instant

RFC_3339 = re.compile(r"\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(?:\.\d{1,30})?(?:[Zz]|[+-]\d{2}:\d{2})", re.ASCII)
EXAMPLE = "2026-01-31T17:30:00Z"


def parse_timestamp(text: str) -> datetime:
    """The instant in UTC. ValueError if it is not an RFC 3339 timestamp."""
    if not RFC_3339.fullmatch(text):
        raise ValueError(f"must be an RFC 3339 timestamp with a zone, such as {EXAMPLE}")
    try:
        return parse_instant(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError(f"{text} is not a valid date and time; use e.g. {EXAMPLE}") from None
