"""Counts of approvals, uncertain runs and unread messages that wait for a person, for the sidebar and the overview."""

from django.db.models import Model, QuerySet
from django.http import HttpRequest

from runs.models import Run, Wait
from runs.notifications.inbox import unread

COUNTED = 100  # beyond, a badge says “99+”


# Literals, not parameters: a generic plan made while the table was small would scan it even when it is large.
def pending_approvals() -> QuerySet[Wait]:
    return Wait.objects.extra(where=["runs_wait.status = 'open' AND runs_wait.kind = 'approval'"])


def uncertain_runs() -> QuerySet[Run]:
    return Run.objects.extra(where=["runs_run.status = 'uncertain'"])


def approvals_badge(request: HttpRequest) -> str:
    return _badge(pending_approvals())


def uncertain_badge(request: HttpRequest) -> str:
    return _badge(uncertain_runs())


def unread_badge(request: HttpRequest) -> str:
    return _badge(unread(request.user.get_username()))


def _badge(rows: QuerySet[Model]) -> str:
    count = rows.order_by()[:COUNTED].count()
    return "99+" if count == COUNTED else str(count or "")
