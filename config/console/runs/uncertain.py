"""Runs that a person must decide on: a step that may have happened, or a journal that does not fit the code."""

from typing import Any

from django.db.models import OuterRef, Prefetch, QuerySet, Subquery
from django.utils.safestring import SafeString

from config.console.parts.html import format_html
from config.console.parts.moments import moment
from config.console.parts.sections import Facts, Notice, Section, Text, pretty
from runs.models import Attempt, Run, Step


def with_doubts(runs: QuerySet[Run]) -> QuerySet[Run]:
    """Adds the uncertain step, if any, and the time since when the run is parked; one more query for all runs."""
    unproved = Step.objects.filter(status=Step.Status.STARTED).order_by("position").defer("output", "usage")
    parked: Any = Attempt.objects.filter(run=OuterRef("pk")).order_by("-epoch").values("ended_at")[:1]
    return runs.annotate(parked_at=Subquery(parked)).prefetch_related(
        Prefetch("steps", unproved, to_attr="unproved_steps")
    )


def unproved_step_of(run: Run) -> Step | None:
    """The unproved step of a run that was read `with_doubts`; None if its journal does not fit today's code."""
    return next(iter(getattr(run, "unproved_steps", ())), None)


def doubt_about(run: Run) -> str | SafeString:
    """The open question, for a list."""
    step = unproved_step_of(run)
    if step is None:
        return run.status_reason
    return format_html("Did <code>{}</code> happen? {}", step.key, run.status_reason)


def notice_of_uncertain(run: Run) -> list[Section]:
    """The top of its page: the facts, and the question to the user."""
    run = with_doubts(Run.objects.filter(pk=run.pk)).get()
    step, since = unproved_step_of(run), moment(run.parked_at)  # type: ignore[attr-defined]
    if step is None:
        notice = Notice(
            level="warning",
            text=f"Uncertain: its journal does not fit today's code. {run.status_reason}",
            details=[
                format_html("Parked {}.", since),
                "Deploy code that fits the journal and let it try again, or fork it before the change, or let it fail.",
            ],
        )
        return [notice]
    notice = Notice(
        level="warning",
        text=format_html("Uncertain: step <code>{}</code> may or may not have happened.", step.key),
        details=[
            run.status_reason,
            "Look up its idempotency key at the called service, then resolve: it happened, it did not, or let the run fail.",
        ],
    )
    facts = Facts(
        title="Uncertain step",
        rows=[
            ("Step", step.key),
            ("Idempotency key", format_html("<code>{}</code>", step.idempotency_key)),
            ("Started", moment(step.started_at)),
            ("Parked", since),
        ],
    )
    return [notice, facts, Text(title="Arguments", text=pretty(step.arguments))]
