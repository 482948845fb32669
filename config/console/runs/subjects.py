"""What runs are about: the subjects of the events that woke them."""

from collections.abc import Iterable
from uuid import UUID

from config.console.runs.words import first_line
from runs.models import Run
from triggers.models import Event


def subjects_of(runs: Iterable[Run]) -> dict[UUID, str]:
    """By run, with one query: the subject of its newest event, if it has one, in one line without secrets."""
    newest = {run.pk: run.event_ids[-1] for run in runs if run.event_ids}
    subjects = dict(Event.objects.filter(pk__in=set(newest.values())).exclude(subject="").values_list("id", "subject"))
    return {run_id: first_line(subjects[event_id]) for run_id, event_id in newest.items() if event_id in subjects}


def title_of(run: Run) -> str:
    subject = subjects_of([run]).get(run.pk)
    return f"{run.agent} · {subject}" if subject else run.agent
