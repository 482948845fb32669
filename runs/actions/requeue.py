from uuid import UUID

from django.db import transaction
from django.db.models import F, Value
from django.db.models.functions import Now

from agents.guards.atomic import not_in_atomic_body
from runs import audit, keys
from runs.db.nudge import nudge_dispatcher
from runs.db.sequence import next_value
from runs.exceptions import IllegalState
from runs.failpoints import failpoint
from runs.models import ProcessedEvent, Run
from runs.states import REQUEUEABLE, RunStatus
from runs.transitions.lock import lock_run


@not_in_atomic_body
def requeue(run_id: UUID, *, by: str) -> Run:
    """Put a failed or cancelled run at the end of the queue, with its attempts at 0. It waits for its key, and runs even if
    its trigger skips overlaps. Raises Run.DoesNotExist, or IllegalState if it is in another state, its events have been
    processed, it was forked, or its payload was removed."""
    with transaction.atomic():
        run = lock_run(run_id)  # a fork locks it as well
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
        requeued = Run.objects.filter(pk=run_id, status__in=REQUEUEABLE, payload_removed_at=None).update(
            status=RunStatus.QUEUED,
            status_reason=f"requeued by {by}",
            seq=next_value("runs_run_seq"),
            turn=None,
            ready_at=None if run.key else Now(),
            slot=None,
            attempt=0,
            epoch=F("epoch") + 1,
            cancel_requested_at=None,
            finished_at=None,
            error=Value(""),
            result=None,
        )
        if not requeued:
            raise IllegalState(
                f"run {run_id} is {run.status}; only failed and cancelled runs can be requeued", run.status
            )
        if run.key:
            keys.promote([run.key])
        audit.record(by, "requeue", run, was=run.status)
        failpoint("before_requeue_commit")
        nudge_dispatcher()
    run.refresh_from_db()
    return run
