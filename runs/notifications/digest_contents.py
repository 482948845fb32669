"""The notifications that a message carries: its own, and those merged into it."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal
from uuid import UUID

from django.db.models import BooleanField, Case, Count, ExpressionWrapper, Q, When
from django.db.models.functions import Now

from runs.models import Approval, Delivery, Notification, Wait
from runs.states import RunStatus

REQUEST = "approval:"  # the link of a notification that asks for a decision
REPORT = Q(link__startswith="alarm:") | Q(link__startswith="incident:")  # each report of one says what is so by then
DECIDED = "left out: what it asks for was decided before the message was sent"
SUPERSEDED = "left out: a later report about the same was sent with the message"
GOES_ON = (RunStatus.QUEUED, RunStatus.RUNNING)  # a fork, or a requeued run, opens its closed wait again
State = Literal["open", "decided", "expired", "stopped"]


@dataclass(frozen=True, kw_only=True)
class Carried:
    """In the order in which they were written; `more`: how many beyond; `expired`: the ids of requests that no one has answered;
    `left_out`: by the id of what is never sent, why."""

    notifications: Sequence[Notification]
    more: int
    expired: Collection[int] = ()
    left_out: Mapping[int, str] = field(default_factory=dict)


def approval_of(notification: Notification) -> UUID | None:
    """The approval that it asks for."""
    if not notification.link.startswith(REQUEST):
        return None
    with suppress(ValueError):  # an agent may link to anything
        return UUID(notification.link.removeprefix(REQUEST))
    return None


def states_of_requests(notifications: Iterable[Notification]) -> dict[int, State]:
    """By the id of a notification that asks for a decision. *Stopped*: so was its run."""
    asked = {one.pk: id for one in notifications if (id := approval_of(one))}
    if not asked:
        return {}
    is_late = ExpressionWrapper(Q(wait__due_at__lte=Now()), output_field=BooleanField())
    known = Approval.objects.filter(pk__in=set(asked.values()))
    rows = known.values_list("pk", "decision", "wait__status", "wait__run__status", is_late)
    states = {pk: _state(decision, status, run in GOES_ON, late) for pk, decision, status, run, late in rows}
    return {pk: states[id] for pk, id in asked.items() if id in states}


def _state(decision: str, status: str, goes_on: bool, is_late: bool | None) -> State:
    match status:
        case _ if decision:
            return "decided"
        case Wait.Status.CLOSED if goes_on:
            return "open"
        case Wait.Status.EXPIRED:
            return "expired"
        case Wait.Status.OPEN:
            return "expired" if is_late else "open"
    return "stopped"


def unsettled(delivery: Delivery, *, most: int) -> Carried:
    """What a delivery carries now: its own notification and those merged into it, without requests that are settled, and of each alarm
    and incident its last report; open requests first, then expired ones, then the first `most` in all."""
    merged = Delivery.objects.filter(merged_into=delivery.pk)
    all_ = Notification.objects.filter(Q(pk=delivery.notification_id) | Q(pk__in=merged.values("notification")))
    judged = list(all_.filter(REPORT | Q(link__startswith=REQUEST)).only("link").order_by("pk"))
    states = states_of_requests(judged)
    last = {one.link: one.pk for one in judged}
    reports = [one for one in judged if not one.link.startswith(REQUEST)]
    left_out = {one.pk: SUPERSEDED for one in reports if last[one.link] != one.pk}
    left_out |= {pk: DECIDED for pk, state in states.items() if state == "decided"}
    expired = {pk for pk, state in states.items() if state == "expired"}
    left = all_.exclude(pk__in={*left_out, *(pk for pk, state in states.items() if state == "stopped")})
    rank = Case(When(pk__in=expired, then=1), When(link__startswith=REQUEST, then=0), default=2)
    shown = list(left.order_by(rank, "pk")[:most])
    more = left.count() - len(shown) if len(shown) == most else 0
    return Carried(notifications=shown, more=more, expired=expired, left_out=left_out)


def carried_by(deliveries: Sequence[Delivery], *, most: int) -> Mapping[UUID, Carried]:
    """By delivery; of those merged into them, the first `most` in all."""
    merged = Delivery.objects.filter(merged_into__in=[delivery.pk for delivery in deliveries])
    counts = dict(merged.order_by().values_list("merged_into").annotate(Count("pk")))
    parts = list(merged.select_related("notification").order_by("notification_id")[:most]) if counts else []
    found = {}
    for delivery in deliveries:
        theirs = [part.notification for part in parts if part.merged_into_id == delivery.pk]
        found[delivery.pk] = Carried(
            notifications=sorted([delivery.notification, *theirs], key=lambda one: one.pk),
            more=counts.get(delivery.pk, 0) - len(theirs),
        )
    return found
