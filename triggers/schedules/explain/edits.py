"""Who edited a schedule, and between which edits it was switched on or off."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q

from runs.models import AuditEntry
from triggers.models import Revision, Schedule
from triggers.schedules.plans import Period

# An audit entry has the time at which its transaction began, a revision that of the edit in it.
LONGEST_EDIT = timedelta(seconds=2)
NO_EDITS = ("fire", "backfill", "cancel")


@dataclass(frozen=True, kw_only=True)
class Change:
    """Who made an edit, and their note."""

    by: str
    note: str = ""


def change_at(schedule: Schedule, instant: datetime) -> Change | None:
    """Who made the edit of an instant: by the audit log, else the user of the database; None if neither says."""
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
        return Change(by=entry.by, note=str(entry.detail.get("note") or entry.detail.get("reason") or ""))
    revision = Revision.objects.filter(schedule=schedule.pk, until=instant).first()
    return Change(by=f"a session of the database ({revision.by})") if revision else None


def switched_off(periods: Sequence[Period], period: Period) -> tuple[datetime, datetime | None]:
    """From when until when the schedule was off around a period in which it was."""
    here = periods.index(period)
    on_before = (one.until for one in reversed(periods[:here]) if one.definition.enabled)
    on_after = (one.since for one in periods[here:] if one.definition.enabled)
    return next(on_before, None) or periods[0].since, next(on_after, None)
