"""Actions on an incident: requeue the failed runs that it covers, close it, acknowledge it, mute it, and end its mute."""

import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Max, Q

from agents.guards.atomic import not_in_atomic_body
from agents.kernel.durations import parse_duration
from agents.kernel.instants import parse_instant
from runs.actions.requeue import requeue_failed
from runs.db.sql import database_now, fetch
from runs.exceptions import IllegalState
from runs.failpoints import failpoint
from runs.incidents.cause import OTHER
from runs.incidents.lock import lock
from runs.incidents.tell import tell
from runs.models import CoveredRun, Incident, audit
from runs.processes.versions import running_versions

BATCH = 200  # runs per transaction
PATIENCE = 20.0  # seconds per call
# The conditions of `Incident.status`.
IN_STATUS = {
    "noticed": Q(opened_at=None),
    "open": Q(opened_at__isnull=False, closed_at=None),
    "closed": Q(closed_at__isnull=False),
}
STATUSES = sorted(IN_STATUS)
MUTED = Q(muted_at__isnull=False)
NOTE = 1_000  # characters of a note
LAST_YEAR = 9998  # of an end: within it, no zone leaves the calendar
UNTIL_VERSION, UNTIL_CLOSED = "version", "closed"  # the next version of the code, its end
FAILED = """
SELECT covered.id, covered.run_id FROM runs_coveredrun covered JOIN runs_run run ON run.id = covered.run_id
WHERE covered.incident_id = %(incident)s::bigint AND covered.id > %(after)s::bigint AND covered.id <= %(upto)s::bigint
  AND run.status = 'failed'
ORDER BY covered.id LIMIT %(limit)s::int
"""


@dataclass(frozen=True, kw_only=True)
class Requeued:
    """The counts of a requeue. `refused`: runs whose work is done or continues elsewhere, or whose payload is gone.
    `left`: runs for which there was no time.
    """

    runs: int = 0
    refused: int = 0
    left: bool = False


def last_covered(incident_id: int) -> int:
    """Identifies the last failure that the incident covers now. Later failures of the same runs come after it."""
    return CoveredRun.objects.filter(incident=incident_id).aggregate(last=Max("id"))["last"] or 0


@not_in_atomic_body
def requeue_incident(
    incident_id: int, *, by: str, upto: int | None = None, patience: float = PATIENCE, batch: int = BATCH
) -> Requeued:
    """Requeue the runs that the incident covers and that are still failed: batch by batch, each in a transaction of its own.
    `upto` is the value of `last_covered` when the page was rendered: a repeated call does not requeue runs that have
    failed again since. Raises Incident.DoesNotExist."""
    incident = Incident.objects.get(pk=incident_id)
    upto = last_covered(incident_id) if upto is None else upto
    until = time.monotonic() + patience
    after = runs = refused = 0
    while time.monotonic() < until:
        with transaction.atomic():
            failed = fetch(FAILED, {"incident": incident_id, "after": after, "upto": upto, "limit": batch})
            if failed:
                done = requeue_failed([run for _, run in failed], by=by)
                audit.record(by, "requeue", incident, runs=done)
                failpoint("before_incident_requeue_commit")
        if not failed:
            if not runs:
                audit.record(by, "requeue", incident, runs=0)
            return Requeued(runs=runs, refused=refused)
        after, runs, refused = failed[-1][0], runs + done, refused + len(failed) - done
    return Requeued(runs=runs, refused=refused, left=True)


@not_in_atomic_body
def close_incident(incident_id: int, *, by: str) -> Incident:
    """Close an incident whose thing will not succeed by itself, such as that of a trigger that is gone. Raises
    Incident.DoesNotExist, or IllegalState if it is not open."""
    with transaction.atomic():
        lock()
        incident = Incident.objects.select_for_update().get(pk=incident_id)
        if not incident.is_open:
            raise IllegalState(
                f"incident {incident_id} is {incident.status}; only an open one can be closed", incident.status
            )
        incident.succeed(now=database_now(), cooldown=settings.WAKEFUL_INCIDENT_COOLDOWN, by=by)
        incident.save(update_fields=["in_a_row", "closed_at", "closed_by", "tell_at"])
        audit.record(by, "close", incident, name=incident.name)
        tell()
    incident.refresh_from_db()
    return incident


@not_in_atomic_body
def acknowledge_incident(incident_id: int, *, by: str, note: str = "") -> Incident:
    """A person looks into it: it is escalated no further, and people get no further message while it is open. Raises
    Incident.DoesNotExist, ValueError for a note that is too long, or IllegalState if it fails no more or is acknowledged."""
    _check_note(note)
    with transaction.atomic():
        incident = _lock_failing(incident_id, "acknowledged")
        if incident.acknowledged_at:
            raise IllegalState(
                f"incident {incident_id} is acknowledged by {incident.acknowledged_by} already", incident.status
            )
        incident.acknowledge(by=by, note=note, now=database_now())
        incident.save(update_fields=["acknowledged_at", "acknowledged_by", "acknowledged_note", "tell_at"])
        audit.record(by, "acknowledge", incident, name=incident.name)
    return incident


@not_in_atomic_body
def mute_incident(incident_id: int, *, until: str, by: str, note: str = "") -> Incident:
    """People get no message about this cause until then: the next `version` of the code, the time when it is `closed`, a duration
    from now, or a time with an offset. A mute replaces the one before. Raises Incident.DoesNotExist, ValueError for an end that cannot be
    or a note that is too long, or IllegalState if it fails no more, is no longer the newest of its cause, or stands for several causes."""
    _check_note(note)
    with transaction.atomic():
        incident = _lock_failing(incident_id, "muted")
        if incident.cause == OTHER:
            raise IllegalState(
                f"incident {incident_id} counts several causes together; only a single one can be muted",
                incident.status,
            )
        alike = Incident.objects.filter(
            kind=incident.kind, subject=incident.subject, fingerprint=incident.fingerprint, id__gt=incident.pk
        )
        if alike.exists():
            raise IllegalState(f"incident {incident_id} is not the newest of its cause", incident.status)
        now = database_now()
        incident.mute(by=by, note=note, now=now, **_end_of_mute(until, now))
        incident.save(update_fields=[*Incident.MUTE, "told", "tell_at"])
        ends = {"versions": incident.muted_versions} if incident.muted_versions else {}
        at = incident.muted_until.isoformat() if incident.muted_until else UNTIL_VERSION if ends else UNTIL_CLOSED
        audit.record(by, "mute", incident, name=incident.name, until=at, **ends)
    return incident


@not_in_atomic_body
def unmute_incident(incident_id: int, *, by: str) -> Incident:
    """End a mute before its time. Raises Incident.DoesNotExist, or IllegalState if it is not muted."""
    with transaction.atomic():
        lock()
        incident = Incident.objects.select_for_update().get(pk=incident_id)
        if not incident.is_muted:
            raise IllegalState(f"incident {incident_id} is not muted", incident.status)
        incident.unmute(now=database_now(), cooldown=settings.WAKEFUL_INCIDENT_COOLDOWN)
        incident.save(update_fields=[*Incident.MUTE, "tell_at"])
        audit.record(by, "unmute", incident, name=incident.name)
    return incident


def _lock_failing(incident_id: int, done: str) -> Incident:
    lock()
    incident = Incident.objects.select_for_update().get(pk=incident_id)
    if not incident.is_failing:
        raise IllegalState(
            f"incident {incident_id} is {incident.status}; only one that fails can be {done}", incident.status
        )
    return incident


def _check_note(note: str) -> None:
    if len(note) > NOTE:
        raise ValueError(f"the note is longer than {NOTE:,} characters")


def _end_of_mute(until: str, now: datetime) -> dict[str, Any]:
    if until == UNTIL_CLOSED:
        return {}
    if until == UNTIL_VERSION:
        if not (versions := running_versions()):
            raise ValueError("no worker has run yet, so the next version cannot be recognized")
        return {"versions": versions}
    at = _time_of(until, now)
    if at <= now:
        raise ValueError("the end of a mute is in the future")
    if at.year > LAST_YEAR:
        raise ValueError(f"the end of a mute is after the year {LAST_YEAR}; without an end, mute it until it is closed")
    return {"until": at}


def _time_of(until: str, now: datetime) -> datetime:
    with suppress(ValueError, OverflowError):
        return now + parse_duration(until)
    with suppress(ValueError):
        if (at := parse_instant(until)).tzinfo:
            return at
    raise ValueError(
        f"a mute ends with {UNTIL_VERSION}, {UNTIL_CLOSED}, after a time such as 8h, or at a time with an offset"
    )


def failed_runs(incident_id: int, most: int) -> list[UUID]:
    """The first of the covered runs that are still failed."""
    asked = {"incident": incident_id, "after": 0, "upto": last_covered(incident_id), "limit": most}
    return [run for _, run in fetch(FAILED, asked)]
