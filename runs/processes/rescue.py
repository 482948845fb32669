"""Runs whose process is gone, frozen or too slow are taken from it: first the fence, then its session and its process,
then the run goes on. A frozen process keeps no locks and commits nothing."""

import time
from collections.abc import Iterable
from datetime import timedelta
from uuid import UUID

import structlog
from django.conf import settings
from django.db import DatabaseError, OperationalError

from runs.db.patience import is_locked, session_waits
from runs.db.sql import execute, fetch
from runs.failpoints import failpoint
from runs.models import Attempt, Run
from runs.models.run import UNPARSED
from runs.policy import Policy
from runs.processes.lease import patience
from runs.processes.timeline import FAILED_OVER
from runs.states import RunStatus
from runs.transitions.leave import take_away
from runs.transitions.outcome import Outcome, ticket_of

log = structlog.get_logger(__name__)

LOCK_PATIENCE = timedelta(milliseconds=200)
TERMINATE_WAIT = 5000  # milliseconds

CLOSE_UNSEEN = """
UPDATE runs_worker SET stopped_at = clock_timestamp(), stopped_reason = 'unseen'
WHERE id IN (
  SELECT id FROM runs_worker
  WHERE stopped_at IS NULL
    AND seen_at < clock_timestamp() - CASE kind WHEN 'worker' THEN %(lease)s::interval ELSE %(others)s::interval END
    AND clock_timestamp() > pg_postmaster_start_time() + %(lease)s::interval
  FOR UPDATE SKIP LOCKED)
RETURNING id, kind, host, pid
"""
# The database's clock was put back: one that lives renews by the new time, the time of one that died would never be over.
COME_BACK = """
UPDATE runs_worker SET seen_at = clock_timestamp()
WHERE id IN (
  SELECT id FROM runs_worker WHERE stopped_at IS NULL AND seen_at > clock_timestamp() + interval '1 second'
  FOR UPDATE SKIP LOCKED)
"""
# Of this epoch and of earlier ones: whoever fenced a run may have died before it ended the session.
TERMINATE = """
SELECT pg_terminate_backend(pid, %(wait)s::bigint) FROM pg_stat_activity
WHERE datname = current_database() AND application_name ~ ('^wakeful:' || %(run)s::text || ':[0-9]+$')
  AND split_part(application_name, ':', 3)::int <= %(epoch)s::int
"""


class Rescuer:
    """Looks for workers unseen for a lease; not within one lease of its own (re)connection, when it cannot know."""

    def __init__(self) -> None:
        self.connected_at = time.monotonic()

    def reconnected(self) -> None:
        self.connected_at = time.monotonic()

    def rescue(self) -> int:
        """Close unseen workers and hand on the runs of closed ones; the number of runs handed on."""
        if time.monotonic() - self.connected_at > settings.WAKEFUL_LEASE.total_seconds():
            close_unseen()
        failpoint("after_close")
        lost_runs = list(runs_of_closed_workers())
        if not lost_runs:
            return 0
        with session_waits(LOCK_PATIENCE):  # of many that are locked elsewhere, each would cost as much
            return sum(lost_unless_locked(run, "its worker was lost") for run in lost_runs)


def close_unseen() -> None:
    execute(COME_BACK)
    for id, kind, host, pid in fetch(CLOSE_UNSEEN, patience()):
        log.warning("worker.unseen", worker=str(id), kind=kind, host=host, pid=pid)


def runs_of_closed_workers() -> Iterable[Run]:
    return (
        Run.objects.running()
        .filter(worker__stopped_at__isnull=False)
        .select_related("worker")
        .defer(*UNPARSED)
        .order_by("seq")
    )


def lost_unless_locked(run: Run, reason: str) -> bool:
    """`lost`, but a lock that somebody holds on the run or its key keeps neither other runs nor the caller from going on."""
    try:
        return lost(run, reason)
    except OperationalError as error:
        if not is_locked(error):
            raise
        log.warning("rescue.locked", run=str(run.id), key=run.key)
        return False


def lost(run: Run, reason: str) -> bool:
    """Hand on a run whose process can no longer be trusted with it. False: it moved on meanwhile, or its session lives yet."""
    if not terminate_session(run.id, run.epoch):
        return False
    failpoint("after_terminate")
    taken = take_away(ticket_of(run), lost_outcome(run, reason), expected=RunStatus.RUNNING)
    if taken:
        log.warning("run.lost", run=str(run.id), agent=run.agent, epoch=run.epoch, attempt=run.attempt, reason=reason)
    return taken


def lost_outcome(run: Run, reason: str) -> Outcome:
    """Attempts count at the claim, so a run that kills its process still ends among the failed."""
    policy = policy_of(run)
    if run.worker and run.worker.stopped_reason == FAILED_OVER and not run.cancel_requested_at:
        reason = "released: the database failed over"
        return Outcome(
            status=RunStatus.QUEUED, attempt=Attempt.Outcome.RELEASED, reason=reason, error=reason, give_back=True
        )
    if run.cancel_requested_at:
        return Outcome(status=RunStatus.CANCELLED, attempt=Attempt.Outcome.LOST, reason="cancelled", error=reason)
    if not policy.attempts_left(run.attempt):
        return Outcome(
            status=RunStatus.FAILED,
            attempt=Attempt.Outcome.LOST,
            reason=f"attempts used up ({run.attempt})",
            error=reason,
        )
    return Outcome(status=RunStatus.QUEUED, attempt=Attempt.Outcome.LOST, reason=reason, error=reason)


def policy_of(run: Run) -> Policy:
    """The policy of a run that may be one this version cannot parse: one run must not stop the rescue of the others."""
    try:
        return Policy.of_run(run.policy)
    except DatabaseError:
        raise
    except Exception:
        log.warning("run.policy_unreadable", run=str(run.id), exc_info=True)
        return Policy.load({})


def terminate_session(run_id: UUID, epoch: int) -> bool:
    """End the session that executes this claim, and wait until it is gone."""
    return all(ended for (ended,) in fetch(TERMINATE, {"wait": TERMINATE_WAIT, "run": str(run_id), "epoch": epoch}))
