"""When no Beat was alive, and who edited a schedule."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q

from runs.db.sql import fetch
from runs.models import AuditEntry
from runs.processes.lease import rest
from triggers.models import Revision, Schedule

# A Beat that vanished was alive until it was last seen, or one look longer; one that stopped recorded when.
SILENCE = """
WITH beat AS (
  SELECT started_at, CASE WHEN stopped_at IS NULL OR stopped_reason = 'unseen' THEN seen_at ELSE stopped_at END AS ended_at
  FROM runs_worker WHERE kind = 'beat'
)
SELECT coalesce(bool_or(%(at)s::timestamptz BETWEEN started_at AND ended_at + %(look)s::interval), false),
       max(ended_at) FILTER (WHERE started_at <= %(at)s::timestamptz),
       min(started_at) FILTER (WHERE started_at > %(at)s::timestamptz)
FROM beat
"""
# An audit entry has the time at which its transaction began, a revision that of the edit in it.
LONGEST_EDIT = timedelta(seconds=2)
NO_EDITS = Q(action__in=("fire", "backfill", "cancel")) | Q(kind="trigger", action__in=("pause", "resume"))


@dataclass(frozen=True, kw_only=True)
class Silence:
    """A time without a live Beat; None: since before the rows of processes begin, or until now."""

    since: datetime | None
    until: datetime | None


def silence_at(at: datetime) -> Silence | None:
    """The time without a Beat that an instant lies in; None if one was alive. Rows of processes are kept for
    WAKEFUL_KEEP_RUNS."""
    [(alive, since, until)] = fetch(SILENCE, {"at": at, "look": rest()})
    return None if alive else Silence(since=since, until=until)


def editor_at(schedule: Schedule, instant: datetime) -> tuple[str, str]:
    """Who made the edit of an instant, by the audit log or else the user of the database, and their note; else empty."""
    calendars = [str(id) for id in schedule.exclude.values_list("id", flat=True)]
    about = (
        Q(kind="schedule", object_id=str(schedule.pk))
        | Q(kind="periodictask", object_id=str(schedule.task_id))
        | Q(kind="trigger", object_id=str(schedule.trigger_id))
        | Q(kind="exclusioncalendar", object_id__in=calendars)
    )
    entries = AuditEntry.objects.filter(about, at__gte=instant - LONGEST_EDIT, at__lte=instant).exclude(NO_EDITS)
    if entry := entries.order_by("-at", "-id").first():
        return entry.by, str(entry.detail.get("note") or entry.detail.get("reason") or "")
    revision = Revision.objects.filter(schedule=schedule.pk, until=instant).first()
    return (f"a session of the database ({revision.by})" if revision else "", "")
