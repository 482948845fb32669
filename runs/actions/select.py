"""Select runs and approvals; the API and the command line use the same filters."""

from datetime import datetime
from uuid import UUID

from django.db.models import Q, QuerySet, TextChoices

from runs.actions.event_runs import runs_of_event
from runs.models import Approval, Run, Wait
from runs.states import RunStatus


def select_runs(
    *,
    event: UUID | None = None,
    trigger: str | None = None,
    status: RunStatus | str | None = None,
    since: datetime | None = None,
) -> QuerySet[Run]:
    """The runs that match all given filters: event, slug of the trigger, status, created since."""
    runs = runs_of_event(event) if event else Run.objects.all()
    if trigger:
        runs = runs.filter(trigger=trigger)
    if status:
        runs = runs.filter(status=status)
    if since:
        runs = runs.filter(created_at__gte=since)
    return runs


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
