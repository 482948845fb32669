"""Select runs and approvals; the API and the command line use the same filters."""

from datetime import datetime
from typing import Any, Self
from uuid import UUID

from django.db.models import Q, QuerySet, TextChoices

from runs.actions.event_runs import runs_of_event
from runs.db.sql import fetch
from runs.keys import BLOCKED
from runs.models import Approval, Run, Wait
from runs.states import RunStatus

FEW = 10_000  # queued runs
# A queued run is ready, due later or blocked behind its key. Each index has one of these; none has all of them in the order of their ids.
# The orders are those of the indexes: where many runs are queued, PostgreSQL would read the table for the first ones.
QUEUED = " UNION ALL ".join(
    f"(SELECT id FROM runs_run WHERE {place} LIMIT {FEW + 1})"  # noqa: S608  (our own parts)
    for place in (
        "status = 'queued' AND ready_at IS NOT NULL ORDER BY queue, agent, priority",
        "status = 'queued' AND due_at IS NOT NULL ORDER BY due_at",
        f"{BLOCKED} AND key IS NOT NULL ORDER BY key, seq",
    )
)
COUNT = f"SELECT count(*) FROM ({QUEUED}) queued"  # noqa: S608


class RunsOfTrigger(QuerySet[Run]):
    """Runs of one trigger, by a range of its slug. In the order of their ids they are also in that of the index `run_by_trigger`: for
    an equality, or for ids alone, PostgreSQL may read the runs of all triggers."""

    def order_by(self, *fields: Any) -> Self:
        by_id = {("id",): ("trigger", "id"), ("-id",): ("-trigger", "-id")}
        return super().order_by(*by_id.get(fields, fields))


def select_runs(
    *,
    event: UUID | None = None,
    trigger: str | None = None,
    status: RunStatus | str | None = None,
    since: datetime | None = None,
) -> QuerySet[Run]:
    """The runs that match all given filters: event, slug of the trigger, status, created since."""
    runs = runs_of_event(event) if event else RunsOfTrigger(Run) if trigger else Run.objects.all()
    if trigger:
        runs = runs.filter(trigger__range=(trigger, trigger))
    if status == RunStatus.QUEUED:
        runs = queued(runs)
    elif status:
        runs = runs.filter(status=status)
    if since:
        runs = runs.filter(created_at__gte=since)
    return runs


def queued(runs: QuerySet[Run]) -> QuerySet[Run]:
    """Those of these runs that are queued. If all that are queued are few, they are found by their indexes; for any other status that is
    rare, PostgreSQL finds the index by itself."""
    found = runs.filter(status=RunStatus.QUEUED)
    [(count,)] = fetch(COUNT)
    among = f"runs_run.id = ANY(ARRAY({QUEUED}))"
    return found.extra(where=[among]) if count <= FEW else found  # noqa: S610  (our own parts)


class ApprovalStatus(TextChoices):
    """The values of `Approval.status`."""

    PENDING = "pending"
    APPROVED = "approved"
    EDITED = "edited"
    DENIED = "denied"
    EXPIRED = "expired"
    CLOSED = "closed"


UNDECIDED = Q(decision="")
STANDS_FOR = {
    ApprovalStatus.PENDING: UNDECIDED & Q(wait__status=Wait.Status.OPEN),
    ApprovalStatus.APPROVED: Q(decision=Approval.Decision.APPROVE),
    ApprovalStatus.EDITED: Q(decision=Approval.Decision.EDIT),
    ApprovalStatus.DENIED: Q(decision=Approval.Decision.DENY),
    ApprovalStatus.EXPIRED: UNDECIDED & Q(wait__status=Wait.Status.EXPIRED),
    ApprovalStatus.CLOSED: UNDECIDED & ~Q(wait__status__in=[Wait.Status.OPEN, Wait.Status.EXPIRED]),
}


def select_approvals(*, status: ApprovalStatus | str | None = None) -> QuerySet[Approval]:
    """All approvals, or those in one status."""
    return Approval.objects.filter(STANDS_FOR[ApprovalStatus(status)] if status else Q())
