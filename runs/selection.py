"""Which runs a person or a program asks for; API and command line select by the same words."""

from uuid import UUID

from django.db.models import QuerySet

from runs.ids import runs_of_event
from runs.models import Run
from runs.states import RunStatus


def select_runs(
    *, event: UUID | None = None, trigger: str | None = None, status: RunStatus | str | None = None
) -> QuerySet[Run]:
    """The runs of one event, of one trigger (by its slug), in one status: all that are given must hold."""
    runs = runs_of_event(event) if event else Run.objects.all()
    if trigger:
        runs = runs.filter(trigger=trigger)
    if status:
        runs = runs.filter(status=status)
    return runs
