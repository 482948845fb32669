from typing import Any
from uuid import UUID

from django.db import transaction

from runs.exceptions import IllegalState
from runs.models import Run, audit
from runs.ports import ports
from runs.states import FINISHED


def signal(run_id: UUID, *, name: str, by: str, data: Any = None) -> UUID:
    """Send a run a signal, an event that it may wait for by this name, now or later. Returns the event's id. Raises
    Run.DoesNotExist, or IllegalState if the run has finished."""
    with transaction.atomic():
        run = Run.objects.get(pk=run_id)
        if run.status in FINISHED:
            raise IllegalState(f"run {run_id} is {run.status}: it no longer accepts signals", run.status)
        event_id = ports.signal(run_id, name, data, by)
        audit.record(by, "signal", run, event=str(event_id))  # the recorded event contains the name and the data
    return event_id
