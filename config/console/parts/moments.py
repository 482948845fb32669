"""Times as HTML: how long ago, in the browser's zone, with UTC as the title to paste into a ticket."""

from datetime import UTC, datetime, timedelta

from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from agents.kernel.durations import in_words

NEVER = SafeString('<span class="moment-ago">–</span>')


def moment(at: datetime | None) -> SafeString:
    """The instant and its distance from now; a script converts it to the browser's zone."""
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


def appointment(at: datetime) -> SafeString:
    """A future instant: “Tuesday 09:00”, or with the date if it is a week away or more."""
    utc = at.astimezone(UTC)
    is_near = abs(utc - timezone.now()) < timedelta(days=6)
    return format_html(
        '<time datetime="{}" title="{} UTC" data-appointment>{} UTC</time>',
        utc.isoformat(),
        f"{utc:%Y-%m-%d %H:%M:%S}",
        f"{utc:%A %H:%M}" if is_near else f"{utc:%Y-%m-%d %H:%M}",
    )


def distance(at: datetime) -> str:
    """“3 min ago”, “in 2 h”."""
    delta = timezone.now() - at
    if abs(delta) < timedelta(seconds=1):
        return "now"
    return f"{in_words(delta)} ago" if delta > timedelta() else f"in {in_words(-delta)}"
