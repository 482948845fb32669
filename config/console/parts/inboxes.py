"""Counts of what waits for a person: approvals, uncertain runs, incidents and unread messages, for the sidebar and the overview."""

from django.db.models import Model, QuerySet
from django.http import HttpRequest

from runs.models import Incident, Run, Wait
from runs.notifications.inbox import unread

COUNTED = 100  # beyond, a badge shows “99+”


# Literals, not parameters: a generic plan made while the table was small would scan it even when it is large.
def pending_approvals() -> QuerySet[Wait]:
    return Wait.objects.extra(where=["runs_wait.status = 'open' AND runs_wait.kind = 'approval'"])


def first_to_expire() -> QuerySet[Wait]:
    """Pending approvals: first those that expire next, last those that do not."""
    return pending_approvals().order_by("due_at", "id")


def uncertain_runs() -> QuerySet[Run]:
    return Run.objects.extra(where=["runs_run.status = 'uncertain'"])


def open_incidents() -> QuerySet[Incident]:
    return Incident.objects.filter(opened_at__isnull=False, closed_at=None)


def troubling_incidents() -> QuerySet[Incident]:
    """Open, and not muted."""
    return open_incidents().filter(muted_at=None)


def approvals_badge(request: HttpRequest) -> str:
    return _badge(pending_approvals())


def uncertain_badge(request: HttpRequest) -> str:
    return _badge(uncertain_runs())


def unread_badge(request: HttpRequest) -> str:
    return _badge(unread(request.user.get_username()))


def incidents_badge(request: HttpRequest) -> str:
    return _badge(troubling_incidents())


def _badge(rows: QuerySet[Model]) -> str:
    count = rows.order_by()[:COUNTED].count()
    return "99+" if count == COUNTED else str(count or "")
