"""The morning digest: a notification that sums up the night, once a day. No model writes it.

Nothing is written if no recipient would get it, or if agents only ran well or were quiet. The task that calls `tell` comes
every hour, so a digest that was missed while processes were down comes later, up to LATEST.
"""

from collections.abc import Iterator
from datetime import timedelta

from django.conf import settings
from django.db import transaction

from runs.budgets.room import amount_in_words
from runs.db.nudge import nudge_dispatcher
from runs.db.sql import database_now
from runs.models import Notification, Recipient
from runs.notifications.alarms import WAKEFUL
from runs.notifications.lock import lock_planning
from triggers.overnight.figures import Figures, Overnight, overnight
from triggers.overnight.night import last_night

TOPIC = "overnight"
LATEST = timedelta(hours=6)
NAMED = 5  # agents


def tell() -> bool:
    """Write the digest of the last night, unless it is written, too late or not worth it."""
    now, hour = database_now(), settings.WAKEFUL_DIGEST_HOUR
    if hour is None:
        return False
    night = last_night(hour, now, settings.WAKEFUL_ZONE)
    topic = f"{TOPIC}:{night.end.isoformat()}"
    if now - night.end > LATEST or _is_told(topic) or not _has_recipient():
        return False
    found = overnight(night)
    if not any(one.is_worth_telling for one in found.agents):
        return False
    with transaction.atomic():
        lock_planning()  # two workers may have the task
        if _is_told(topic):
            return False
        Notification.objects.create(
            sender=WAKEFUL, urgency=Notification.Urgency.LOW, text=text_of(found), topic=topic, link=topic
        )
        nudge_dispatcher()
    return True


def text_of(found: Overnight) -> str:
    zone = settings.WAKEFUL_ZONE
    start, end = (at.astimezone(zone) for at in (found.night.start, found.night.end))
    worth = [one for one in found.agents if one.is_worth_telling]
    lines = [f"From {start:%A %H:%M} to {end:%A %H:%M} ({zone.key}): {_said(found.total)}."]
    lines += [f"{one.agent}: {_said(one)}" for one in worth[:NAMED]]
    if len(worth) > NAMED:
        lines.append(f"and {len(worth) - NAMED} more")
    if found.cut:
        lines.append(f"There was more: {', '.join(found.cut)} are not counted in full.")
    return "\n".join(lines)


def _said(one: Figures) -> str:
    return ", ".join(_parts(one))


def _parts(one: Figures) -> Iterator[str]:
    if one.woken:
        yield _counted(one.woken, "wake") + (f" ({one.quiet:,} quiet)" if one.quiet else "")
    if one.failed:
        yield f"{one.failed:,} failed"
    if one.incidents:
        yield _counted(one.incidents, "incident")
    if one.spoke:
        unsaid = [
            f"{one.deliveries[status]:,} {status}" for status in ("suppressed", "unknown") if one.deliveries[status]
        ]
        yield _counted(one.spoke, "notification") + (f" ({', '.join(unsaid)})" if unsaid else "")
    if one.requests:
        price = amount_in_words("usd", one.usd) + (" and more" if one.unpriced else "")
        yield (
            f"{_counted(one.requests, 'model request')} for {price}"
            if one.usd
            else _counted(one.requests, "model request")
        )


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _is_told(topic: str) -> bool:
    return Notification.objects.filter(topic=topic).exists()


def _has_recipient() -> bool:
    """Would anyone get it? The recipient of the settings has no row before the first notification."""
    return bool(settings.WAKEFUL_NOTIFY_TO) or Recipient.objects.filter(active=True, gets_all=True).exists()
