from uuid import UUID

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now

from runs import audit
from runs.exceptions import IllegalState
from runs.failpoints import failpoint
from runs.models import Run
from runs.outcome import Outcome, take_away
from runs.rescue import ticket_of
from runs.states import FINISHED, LIVE, RunStatus


def cancel(run_id: UUID, *, by: str) -> Run:
    """Cancel a run: at once where it is not running; otherwise its worker is asked to stop it, within about 3 s.

    Raises Run.DoesNotExist, or IllegalState when it has finished: then that won.
    """
    with transaction.atomic():
        run = Run.objects.get(pk=run_id)
        while not _cancelled(run, by):
            run = Run.objects.get(pk=run_id)
            if run.status in FINISHED:
                raise IllegalState(f"run {run_id} is {run.status} already", run.status)
        audit.record(by, "cancel", run)
        failpoint("before_cancel_commit")
    run.refresh_from_db()
    return run


def replace_others(key: str, run_id: UUID) -> None:
    """Cancel every live run of a key but this one, in the caller's transaction and under the key's lock. Those blocked
    go first: the place of one that stops is not given to another that is to stop."""
    others = Run.objects.filter(key=key, status__in=LIVE).exclude(pk=run_id)
    for run in others.order_by(F("slot").asc(nulls_first=True), "seq"):
        while not _cancelled(run, f"the next event, for run {run_id}"):
            run.refresh_from_db()
            if run.status in FINISHED:
                break


def _cancelled(run: Run, by: str) -> bool:
    if run.status in FINISHED:
        return False
    if run.status == RunStatus.RUNNING:
        waiting = Run.objects.filter(pk=run.pk, epoch=run.epoch, status=RunStatus.RUNNING)
        return waiting.update(cancel_requested_at=Now()) == 1
    outcome = Outcome(status=RunStatus.CANCELLED, reason=f"cancelled by {by}")
    return take_away(ticket_of(run), outcome, expected=RunStatus(run.status))
