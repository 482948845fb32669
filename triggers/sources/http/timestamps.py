"""Timestamps as CloudEvents and most webhooks write them."""

import re
from datetime import UTC, datetime

from agents.kernel.instants import parse_instant

UNIX_TIME = re.compile(r"[0-9]{1,13}", re.ASCII)
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


def time_in(text: str | None) -> datetime | None:
    """The instant in an RFC 3339 timestamp or in Unix time, of seconds or milliseconds; None for any other text."""
    try:
        if text and UNIX_TIME.fullmatch(text):
            # Eleven digits of seconds reach the year 5138, thirteen of milliseconds the year 2286.
            return datetime.fromtimestamp(int(text) / (1000 if len(text) > 11 else 1), UTC)
        return parse_timestamp(text or "")
    except ValueError:
        return None
