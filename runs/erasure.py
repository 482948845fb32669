"""Erasing what finished runs were given, what they gave and what they told people."""

from collections.abc import Sequence
from uuid import UUID

from django.db.models import Min

from runs.models import Notification, Run
from runs.payloads import remove_payloads
from runs.sql import fetch

ERASED = "(erased)"
EMITTING = """
SELECT DISTINCT (payload->>'cause_run_id')::uuid FROM runs_outboxmessage
WHERE topic = 'event' AND payload->>'cause_run_id' = ANY(%s::text[])
"""


def erase_runs(run_ids: Sequence[UUID]) -> int:
    """Take payload, key and notifications of finished runs away, in the caller's transaction; how many had any payload.
    A key may be a name or an address. Live runs are left as they are."""
    count = len(remove_payloads(run_ids))
    finished = Run.objects.finished().filter(id__in=run_ids)
    finished.exclude(key=None).update(key=None)
    first = finished.aggregate(first=Min("created_at"))["first"]
    if first:
        # By the index on the time: there is none on the run.
        told = Notification.objects.filter(created_at__gte=first, run_id__in=finished.values_list("id", flat=True))
        told.exclude(text=ERASED).update(text=ERASED)
    return count


def emitting(run_ids: Sequence[UUID]) -> set[UUID]:
    """Those of the runs that emitted an event which has not been recorded yet."""
    return {id for (id,) in fetch(EMITTING, [[str(id) for id in run_ids]])} if run_ids else set()
