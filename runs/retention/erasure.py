"""Erasing what finished runs were given, what they gave and what they told people."""

from collections.abc import Sequence
from uuid import UUID

from django.db.models import Min

from runs.actions.of_event import runs_of_event
from runs.db.sql import execute, fetch
from runs.models import Approval, Notification, Run, Wait
from runs.retention import family
from runs.retention.payloads import remove_payloads
from runs.retention.removal import REMOVING

ERASED = "(erased)"
EMITTING = """
SELECT DISTINCT said.run::uuid FROM runs_outboxmessage,
  LATERAL (SELECT CASE topic WHEN 'event' THEN payload->>'cause_run_id' WHEN 'wakeup' THEN payload->>'run' END) said (run)
WHERE topic IN ('event', 'wakeup') AND said.run = ANY(%s::text[])
"""
# What an agent gave as the key of a step or a wait may be a name or an address as well; their names are of the code.
ERASE_KEYS = """
UPDATE {table} SET key = split_part(key, ':', 1) || ':(erased)#' || position WHERE run_id = ANY(%s::uuid[]) AND is_keyed
"""
# New entries name positions instead; these are of earlier versions. A digest would tell which of few values it was.
ERASE_AUDIT = """
UPDATE runs_auditentry SET detail = detail - '{step,name,digest}'::text[]
WHERE kind = %(kind)s AND object_id = ANY(%(ids)s::text[]) AND detail ?| '{step,name,digest}'::text[]
"""
KEYS = [ERASE_KEYS.format(table=table) for table in ("runs_step", "runs_wait")]


def holders(event_ids: Sequence[UUID]) -> dict[UUID, set[UUID]]:
    """Of each event the runs that may hold what it said: those it was for, those whose wait took it, the children and
    forks of these, and whoever is given what they gave. What a parent so given passed on to its other children, nobody
    can tell: they are left."""
    found = {event: set(runs_of_event(event).values_list("id", flat=True)) for event in event_ids}
    for event, run in Wait.objects.filter(event_id__among=event_ids).values_list("event_id", "run_id"):
        if event is not None:
            found[event].add(run)
    given = set[UUID]().union(*found.values())
    heirs, readers = family.heirs(given), family.readers(given)
    return {
        event: runs.union(*(kin.get(run, set()) for run in runs for kin in (heirs, readers)))
        for event, runs in found.items()
    }


def erase_runs(run_ids: Sequence[UUID]) -> int:
    """Take payload, keys and notifications of finished runs away, in the caller's transaction; how many had any payload.
    A key may be a name or an address. Live runs are left as they are."""
    count = len(remove_payloads(run_ids))
    finished = Run.objects.finished().filter(id__among=run_ids)
    ids = list(finished.values_list("id", flat=True))
    for statement in KEYS:
        execute(statement, [ids])
    approvals = Approval.objects.filter(wait__run__id__among=ids).values_list("id", flat=True)
    fetch(f"SELECT {REMOVING}")
    for kind, objects in (("run", ids), ("approval", approvals)):
        execute(ERASE_AUDIT, {"kind": kind, "ids": [str(id) for id in objects]})
    finished.exclude(key=None).update(key=None)
    first = finished.aggregate(first=Min("created_at"))["first"]
    if first:
        # By the index on the time: there is none on the run.
        told = Notification.objects.filter(created_at__gte=first, run_id__among=ids)
        told.exclude(text=ERASED).update(text=ERASED)
    return count


def emitting(run_ids: Sequence[UUID]) -> set[UUID]:
    """Those of the runs that emitted an event which has not been recorded yet, or asked to be woken at a later time."""
    return {id for (id,) in fetch(EMITTING, [[str(id) for id in run_ids]])} if run_ids else set()
