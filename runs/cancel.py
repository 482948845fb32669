from uuid import UUID

from django.db import transaction
from django.db.models.functions import Now

from runs import audit
from runs.exceptions import IllegalState
from runs.models import Run
from runs.outcome import Outcome, take_away
from runs.rescue import ticket_of
from runs.states import FINISHED, RunStatus


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
    run.refresh_from_db()
    return run


def _cancelled(run: Run, by: str) -> bool:
    if run.status in FINISHED:
        return False
    if run.status == RunStatus.RUNNING:
        waiting = Run.objects.filter(pk=run.pk, epoch=run.epoch, status=RunStatus.RUNNING)
        return waiting.update(cancel_requested_at=Now()) == 1
    outcome = Outcome(status=RunStatus.CANCELLED, reason=f"cancelled by {by}")
    return take_away(ticket_of(run), outcome, expected=RunStatus(run.status))
