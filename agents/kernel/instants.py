import re
from datetime import datetime, timedelta

INSTANT = re.compile(
    r"(?P<day>\d{4}-\d{2}-\d{2})"
    r"(?:[Tt ](?P<minute>\d{2}:\d{2})(?::(?P<second>\d{2})(?:[.,](?P<fraction>\d{1,30}))?)?"
    r" ?(?P<offset>[Zz]|[+-]\d{2}:?\d{2})?)?",
    re.ASCII,
)
WITH_OFFSET = "2026-12-01T09:00+01:00"
FORMS = f"2026-12-01T09:00 or {WITH_OFFSET}"


def parse_instant(text: str) -> datetime:
    """A datetime from ISO 8601, naive if the text has no offset; a day alone is its midnight. ValueError names the forms."""
    found = INSTANT.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:100]!r} is not a date and time; use e.g. {FORMS}")
    # RFC 3339 §5.7 allows a leap second, which datetime does not know.
    is_leap = found["second"] == "60"
    second = "59" if is_leap else found["second"] or "00"
    fraction = (found["fraction"] or "")[:6].ljust(6, "0")
    offset = (found["offset"] or "").upper()
    try:
        at = datetime.fromisoformat(f"{found['day']}T{found['minute'] or '00:00'}:{second}.{fraction}{offset}")
        return at + timedelta(seconds=is_leap)
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is not a valid date and time; use e.g. {FORMS}") from None


def instant_with_offset(instant: str | datetime) -> datetime:
    """Like `parse_instant`, but ValueError if there is no offset; a datetime is returned as it is."""
    try:
        at = parse_instant(instant) if isinstance(instant, str) else instant
    except ValueError:
        raise ValueError(f"{instant!s:.100} is not a date and time with an offset; use e.g. {WITH_OFFSET}") from None
    if at.tzinfo is None:
        raise ValueError(f"{instant!s} has no offset; use e.g. {WITH_OFFSET}")
    return at
