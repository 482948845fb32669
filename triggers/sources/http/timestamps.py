"""Timestamps as CloudEvents and most webhooks write them."""

import re
from datetime import UTC, datetime, timedelta

TIMESTAMP = re.compile(
    r"(?P<date>\d{4}-\d{2}-\d{2})[Tt](?P<minute>\d{2}:\d{2}):(?P<second>\d{2})"
    r"(?:\.(?P<fraction>\d{1,30}))?(?P<zone>[Zz]|[+-]\d{2}:\d{2})",
    re.ASCII,
)


def parse_timestamp(text: str) -> datetime:
    """The instant in UTC. ValueError if it is not an RFC 3339 timestamp."""
    found = TIMESTAMP.fullmatch(text)
    if found is None:
        raise ValueError("must be an RFC 3339 timestamp with a zone, such as 2026-01-31T17:30:00Z")
    # RFC 3339 §5.7 allows a leap second, which datetime does not know.
    leap = found["second"] == "60"
    second = "59" if leap else found["second"]
    fraction = (found["fraction"] or "")[:6].ljust(6, "0")
    zone = "+00:00" if found["zone"] in "Zz" else found["zone"]
    try:
        instant = datetime.fromisoformat(f"{found['date']}T{found['minute']}:{second}.{fraction}{zone}")
        return instant.astimezone(UTC) + timedelta(seconds=leap)
    except (ValueError, OverflowError):
        raise ValueError(f"{text} is not a valid date and time") from None
