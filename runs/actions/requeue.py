from collections.abc import Sequence
from uuid import UUID

from django.db import transaction

from agents.guards.atomic import not_in_atomic_body
from runs import keys
from runs.db.nudge import nudge_dispatcher
from runs.db.sql import execute, fetch_column
from runs.exceptions import IllegalState
from runs.failpoints import failpoint
from runs.models import ProcessedEvent, Run, audit
from runs.states import RunStatus
from runs.transitions.lock import lock_run

# Runs that another run continues, or whose events have been processed.
SETTLED = """
SELECT run.id FROM runs_run run WHERE run.id = ANY(%s::uuid[]) AND (
  EXISTS (SELECT FROM runs_run fork WHERE fork.forked_from_id = run.id)
  OR EXISTS (
    SELECT FROM runs_processedevent done
    WHERE done.event_id = ANY(run.event_ids) AND done.consumer = run.trigger AND done.replay_id = run.replay_id))
"""
# Move the runs to the end of the queue, in their previous order. Materialized: a join that reads the numbers again for each run would
# draw new ones, in the order in which it finds the runs.
PUT_BACK = """
WITH place AS MATERIALIZED (
  SELECT id, nextval('runs_run_seq') AS seq
  FROM (SELECT id FROM runs_run WHERE id = ANY(%(ids)s::uuid[]) ORDER BY seq) in_order)
UPDATE runs_run SET
  status = 'queued', status_reason = %(reason)s::text, seq = place.seq, turn = NULL, slot = NULL,
  ready_at = CASE WHEN key IS NULL THEN clock_timestamp() END,
  attempt = 0, epoch = epoch + 1, cancel_requested_at = NULL, finished_at = NULL, error = '', result = NULL
FROM place WHERE runs_run.id = place.id AND status IN ('failed', 'cancelled') AND payload_removed_at IS NULL
"""
# A run that ended during its turn no longer holds the session and does not get it back: runs behind its key may wait
# for it.
RELEASE = "UPDATE agents_session SET run_id = NULL WHERE run_id = ANY(%(ids)s::uuid[])"
# A run that has waited too long for a session, or was cancelled there, waits again for the whole time. Nothing in its journal depends
# on a wait that is its last entry.
WAIT_AGAIN = """
DELETE FROM runs_wait WHERE run_id = ANY(%(ids)s::uuid[]) AND kind = 'session' AND status IN ('expired', 'closed')
  AND NOT EXISTS (SELECT FROM runs_step step WHERE step.run_id = runs_wait.run_id AND step.position > runs_wait.position)
  AND NOT EXISTS (SELECT FROM runs_wait later WHERE later.run_id = runs_wait.run_id AND later.position > runs_wait.position)
"""


@not_in_atomic_body
def requeue(run_id: UUID, *, by: str) -> Run:
    """Put a failed or cancelled run at the end of the queue, with its attempts at 0. It waits for its key, and runs even if
    its trigger skips overlaps. Raises Run.DoesNotExist, or IllegalState if it is in another state, its events have been
    processed, it was forked, or its payload was removed."""
    with transaction.atomic():
        run = lock_run(run_id)  # a fork locks the run as well
        if fork := Run.objects.filter(forked_from_id=run_id).order_by("id").last():
            raise IllegalState(
                f"run {run_id} was forked and run {fork.pk} continues its work; requeue or fork that run", run.status
            )
        if ProcessedEvent.objects.filter(
            event_id__in=run.event_ids, consumer=run.trigger, replay_id=run.replay_id
        ).exists():
            raise IllegalState(
                f"run {run_id}: its event has already been processed; replay the event to run it again", run.status
            )
        if run.payload_removed_at:
            raise IllegalState(f"run {run_id} cannot be requeued: retention or erasure removed its payload", run.status)
        if not _put_back([run], by):
            raise IllegalState(
                f"run {run_id} is {run.status}; only failed and cancelled runs can be requeued", run.status
            )
        audit.record(by, "requeue", run, was=run.status)
        failpoint("before_requeue_commit")
    run.refresh_from_db()
    return run


def requeue_failed(run_ids: Sequence[UUID], *, by: str) -> int:
    """Requeue those of these runs that are failed and that `requeue` would take, in the caller's transaction; returns how many."""
    # All keys first, in their order, as everywhere: against deadlocks.
    keys.lock_all(key for key in Run.objects.filter(id__in=run_ids).values_list("key", flat=True) if key)
    found = Run.objects.select_for_update().filter(id__in=run_ids, status=RunStatus.FAILED, payload_removed_at=None)
    runs = list(found.only("id", "key", "status").order_by("id"))
    settled = set(fetch_column(SETTLED, [[run.pk for run in runs]]))
    going = [run for run in runs if run.pk not in settled]
    if not going:
        return 0
    audit.record_each(by, "requeue", going, was=RunStatus.FAILED)
    return _put_back(going, by)


def _put_back(runs: Sequence[Run], by: str) -> int:
    ids = [run.pk for run in runs]
    requeued = execute(PUT_BACK, {"ids": ids, "reason": f"requeued by {by}"})
    if requeued:
        for statement in (RELEASE, WAIT_AGAIN):
            execute(statement, {"ids": ids})
    keys.promote(run.key for run in runs if run.key)
    nudge_dispatcher()
    return requeued
