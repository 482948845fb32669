"""Times as an operator reads them: how long ago, in the browser's zone, with UTC to paste into a ticket."""

from datetime import UTC, datetime, timedelta

from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
NEVER = SafeString('<span class="moment-ago">–</span>')


def moment(at: datetime | None) -> SafeString:
    """The instant and how far it is from now; a script of the page turns it into the browser's zone."""
    if at is None:
        return NEVER
    return format_html('{} <span class="moment-ago">{}</span>', instant(at), distance(at))


def instant(at: datetime) -> SafeString:
    utc = at.astimezone(UTC)
    return format_html(
        '<time datetime="{}" title="{} UTC">{} UTC</time>',
        utc.isoformat(),
        f"{utc:%Y-%m-%d %H:%M:%S}.{utc.microsecond // 1000:03}",
        f"{utc:%Y-%m-%d %H:%M:%S}",
    )


def distance(at: datetime) -> str:
    """“3 min ago”, “in 2 h”."""
    delta = timezone.now() - at
    if abs(delta) < timedelta(seconds=1):
        return "now"
    return f"{span(delta)} ago" if delta > timedelta() else f"in {span(-delta)}"


def span(delta: timedelta) -> str:
    """A duration by its two largest units: “2 h 5 min”, “340 ms”."""
    if delta < timedelta(seconds=1):
        return f"{delta / timedelta(milliseconds=1):.0f} ms"
    left = round(delta.total_seconds())
    parts: list[tuple[int, str]] = []
    for unit, seconds in UNITS:
        amount, left = divmod(left, seconds)
        if amount or parts:
            parts.append((amount, unit))
    return " ".join(f"{amount} {unit}" for amount, unit in parts[:2] if amount)
