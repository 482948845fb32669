"""Actions on an incident: requeue the failed runs that it covers, and close it."""

import time
from dataclasses import dataclass
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Max, Q

from agents.guards.atomic import not_in_atomic_body
from runs.actions.requeue import requeue_failed
from runs.db.sql import database_now, fetch
from runs.exceptions import IllegalState
from runs.failpoints import failpoint
from runs.incidents.lock import lock
from runs.incidents.tell import tell
from runs.models import CoveredRun, Incident, audit

BATCH = 200  # runs per transaction
PATIENCE = 20.0  # seconds per call
# The conditions of `Incident.status`.
IN_STATUS = {
    "noticed": Q(opened_at=None),
    "open": Q(opened_at__isnull=False, closed_at=None),
    "closed": Q(closed_at__isnull=False),
}
STATUSES = sorted(IN_STATUS)
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


def failed_runs(incident_id: int, most: int) -> list[UUID]:
    """The first of the covered runs that are still failed."""
    asked = {"incident": incident_id, "after": 0, "upto": last_covered(incident_id), "limit": most}
    return [run for _, run in fetch(FAILED, asked)]
