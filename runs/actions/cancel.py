from uuid import UUID

from django.db import transaction

from agents.guards.atomic import not_in_atomic_body
from runs import keys
from runs.exceptions import IllegalState
from runs.failpoints import failpoint
from runs.models import Run, audit
from runs.states import FINISHED
from runs.transitions.stop import stop


@not_in_atomic_body
def cancel(run_id: UUID, *, by: str) -> Run:
    """Cancel a run: at once if it is not running; otherwise its worker stops it within about 3 s.

    Raises Run.DoesNotExist, or IllegalState if it has finished.
    """
    with transaction.atomic():
        run = Run.objects.get(pk=run_id)
        if run.key:
            keys.lock(run.key)  # before the run's row, as everywhere: a failed `stop` keeps the row locked
        while not stop(run, by):
            run = Run.objects.get(pk=run_id)
            if run.status in FINISHED:
                raise IllegalState(f"run {run_id} is already {run.status}", run.status)
        audit.record(by, "cancel", run)
        failpoint("before_cancel_commit")
    run.refresh_from_db()
    return run
