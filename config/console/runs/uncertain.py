"""Runs that a person must decide on: what was about to be sent, or where journal and code part."""

from typing import Any

from django.db.models import OuterRef, Prefetch, QuerySet, Subquery
from django.utils.html import format_html
from django.utils.safestring import SafeString

from config.console.parts.moments import moment
from config.console.parts.sections import Facts, Notice, Section, Text, pretty
from runs.models import Attempt, Run, Step


def with_doubts(runs: QuerySet[Run]) -> QuerySet[Run]:
    """Each with the step that cannot be proved, if any, and since when it is parked; one more query for all."""
    unproved = Step.objects.filter(status=Step.Status.STARTED).order_by("position").defer("output", "usage")
    parked: Any = Attempt.objects.filter(run=OuterRef("pk")).order_by("-epoch").values("ended_at")[:1]
    return runs.annotate(parked_at=Subquery(parked)).prefetch_related(
        Prefetch("steps", unproved, to_attr="unproved_steps")
    )


def unproved_step_of(run: Run) -> Step | None:
    """Of a run that was read `with_doubts`; None where its journal did not fit today's code."""
    return next(iter(getattr(run, "unproved_steps", ())), None)


def doubt_about(run: Run) -> str | SafeString:
    """What is not known, for a list."""
    step = unproved_step_of(run)
    if step is None:
        return run.status_reason
    return format_html("Did <code>{}</code> happen? {}", step.key, run.status_reason)


def notice_of_uncertain(run: Run) -> list[Section]:
    """On top of its page: what is known, and what a person is asked."""
    run = with_doubts(Run.objects.filter(pk=run.pk)).get()
    step, since = unproved_step_of(run), moment(run.parked_at)  # type: ignore[attr-defined]
    if step is None:
        notice = Notice(
            level="warning",
            text=f"Uncertain: its journal does not fit today's code. {run.status_reason}",
            details=[
                format_html("Parked {}.", since),
                "Bring back code that fits, then let it try again; or fork it from before the change; or let it fail.",
            ],
        )
        return [notice]
    notice = Notice(
        level="warning",
        text=format_html("Uncertain: nobody knows whether step <code>{}</code> happened.", step.key),
        details=[
            run.status_reason,
            "Find out by its idempotency key where it was sent to, then resolve: it happened, it did not, or let the run fail.",
        ],
    )
    facts = Facts(
        title="What was about to be sent",
        rows=[
            ("Step", step.key),
            ("Idempotency key", format_html("<code>{}</code>", step.idempotency_key)),
            ("Begun", moment(step.started_at)),
            ("Parked", since),
        ],
    )
    return [notice, facts, Text(title="Its arguments", text=pretty(step.arguments))]
