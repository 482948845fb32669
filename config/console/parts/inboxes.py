"""Counts of what waits for a person: approvals, uncertain runs, incidents and unread messages, for the sidebar and the overview."""

from collections import Counter
from typing import cast

from django.db.models import QuerySet, Value
from django.http import HttpRequest

from runs.models import Incident, Run, Wait
from runs.notifications.inbox import unread
from runs.states import RunStatus

COUNTED = 100  # beyond, a badge shows “99+”


def pending_approvals() -> QuerySet[Wait]:
    return Wait.objects.filter(status=Wait.Status.OPEN, kind=Wait.Kind.APPROVAL)


def first_to_expire() -> QuerySet[Wait]:
    """Pending approvals: first those that expire next, last those that do not."""
    return pending_approvals().order_by("due_at", "id")


def uncertain_runs() -> QuerySet[Run]:
    return Run.objects.filter(status=RunStatus.UNCERTAIN)


def open_incidents() -> QuerySet[Incident]:
    return Incident.objects.filter(opened_at__isnull=False, closed_at=None)


def troubling_incidents() -> QuerySet[Incident]:
    """Open, and not muted."""
    return open_incidents().filter(muted_at=None)


def approvals_badge(request: HttpRequest) -> str:
    return _badge(request, "approvals")


def uncertain_badge(request: HttpRequest) -> str:
    return _badge(request, "uncertain")


def unread_badge(request: HttpRequest) -> str:
    return _badge(request, "unread")


def incidents_badge(request: HttpRequest) -> str:
    return _badge(request, "incidents")


def _badge(request: HttpRequest, name: str) -> str:
    count = _counts(request)[name]
    return "99+" if count == COUNTED else str(count or "")


def _counts(request: HttpRequest) -> Counter[str]:
    """Of all badges of a page, with one query."""
    if "_badges" not in request.__dict__:
        rows = {
            "approvals": pending_approvals(),
            "uncertain": uncertain_runs(),
            "unread": unread(request.user.get_username()),
            "incidents": troubling_incidents(),
        }
        first, *rest = (of.order_by().values_list(Value(name))[:COUNTED] for name, of in rows.items())
        request.__dict__["_badges"] = Counter(name for (name,) in first.union(*rest, all=True))
    return cast("Counter[str]", request.__dict__["_badges"])
