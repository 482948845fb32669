"""What retention takes of runs, and of what they leave behind. Nothing live is ever taken."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings

from runs.models import Run
from runs.payloads import remove_payloads
from runs.sql import execute
from runs.sweep import Step, Walk, few, oldest

PAYLOADS = "runs.payload"
LAG = timedelta(hours=1)  # most runs have finished so long after their event, whose time is in their id
DELETE_ATTEMPTS = "DELETE FROM runs_attempt WHERE run_id = ANY(%s::uuid[])"
DELETE_RUNS = "DELETE FROM runs_run WHERE id = ANY(%s::uuid[])"
LONG_STOPPED = """
stopped_at < clock_timestamp() - %(keep)s::interval
AND NOT EXISTS (SELECT FROM runs_run run WHERE run.worker_id = runs_worker.id AND run.status = 'running')
"""


def steps() -> list[Step]:
    """Payloads come first: an event's goes when none of its runs has one any more."""
    payloads, runs, audit = settings.WAKEFUL_KEEP_PAYLOADS, settings.WAKEFUL_KEEP_RUNS, settings.WAKEFUL_KEEP_AUDIT
    table = "runs_run"
    return [
        Walk(name=PAYLOADS, table=table, keep=payloads, judge=with_old_payload, remove=remove_payloads, lag=LAG),
        Walk(name="runs", table=table, keep=runs, judge=old, remove=delete_runs, lag=LAG),
        oldest("notifications", "runs_notification", at="created_at", keep=runs),
        few("workers", "runs_worker", key="id", which=LONG_STOPPED, keep=runs),
        oldest("alarms", "runs_alarm", at="ended_at", keep=audit),
        oldest("audit", "runs_auditentry", at="at", keep=audit),
    ]


def old(ids: Sequence[UUID], cutoff: datetime) -> list[UUID]:
    """Those that finished before the instant: a run of an old event may have waited long, or be a replay."""
    finished = Run.objects.finished().filter(id__in=ids, finished_at__lt=cutoff)
    return list(finished.values_list("id", flat=True))


def with_old_payload(ids: Sequence[UUID], cutoff: datetime) -> list[UUID]:
    return list(Run.objects.filter(id__in=old(ids, cutoff), payload_removed_at=None).values_list("id", flat=True))


def delete_runs(ids: Sequence[UUID]) -> None:
    execute(DELETE_ATTEMPTS, [ids])
    execute(DELETE_RUNS, [ids])
