"""What decided when a schedule fires, from when until when, and who changed it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q

from runs.models import AuditEntry
from triggers.models import Revision, Schedule
from triggers.schedules.plans import Period

# An audit entry bears the time at which its transaction began, a revision the moment of the edit in it.
LONGEST_EDIT = timedelta(seconds=2)
NO_EDITS = ("fire", "backfill", "cancel")


@dataclass(frozen=True, kw_only=True)
class Change:
    """An edit of what decides when a schedule fires: who made it, and what they noted."""

    at: datetime
    by: str
    note: str = ""


def stretch_of(periods: Sequence[Period], period: Period) -> tuple[datetime, datetime | None]:
    """From when until when it was switched on, or off, as it is in this period."""
    first = last = periods.index(period)
    while first > 0 and periods[first - 1].definition.enabled == period.definition.enabled:
        first -= 1
    while last + 1 < len(periods) and periods[last + 1].definition.enabled == period.definition.enabled:
        last += 1
    return periods[first].since, periods[last].until


def change_at(schedule: Schedule, instant: datetime) -> Change | None:
    """Who made the edit of an instant: by the audit log, else whom the database saw; None if it does not know."""
    calendars = [str(id) for id in schedule.exclude.values_list("id", flat=True)]
    about = (
        Q(kind="schedule", object_id=str(schedule.pk))
        | Q(kind="periodictask", object_id=str(schedule.task_id))
        | Q(kind="trigger", object_id=str(schedule.trigger_id))
        | Q(kind="exclusioncalendar", object_id__in=calendars)
    )
    entries = AuditEntry.objects.filter(about, at__gte=instant - LONGEST_EDIT, at__lte=instant)
    of_trigger = Q(kind="trigger", action__in=("pause", "resume"))
    entry = entries.exclude(Q(action__in=NO_EDITS) | of_trigger).order_by("-at", "-id").first()
    if entry:
        note = entry.detail.get("note") or entry.detail.get("reason") or ""
        return Change(at=instant, by=entry.by, note=str(note))
    revision = Revision.objects.filter(schedule=schedule.pk, until=instant).first()
    return Change(at=instant, by=f"somebody in the database ({revision.by})") if revision else None
