"""The notifications that a message carries: its own, and those merged into it."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Case, Count, Max, Q, QuerySet, When
from django.db.models.functions import Now

from runs.models import Approval, Delivery, Notification, Wait

REQUEST = "approval:"  # the link of a notification that asks for a decision
REPORT = Q(link__startswith="alarm:") | Q(link__startswith="incident:")  # each report of one says what is so by then


@dataclass(frozen=True, kw_only=True)
class Carried:
    """In the order in which they were written; `more`: how many beyond; `expired`: the ids of requests that no one has answered."""

    notifications: Sequence[Notification]
    more: int
    expired: Collection[int] = ()


def approval_of(notification: Notification) -> UUID | None:
    """The approval that it asks for."""
    if not notification.link.startswith(REQUEST):
        return None
    with suppress(ValueError):  # an agent may link to anything
        return UUID(notification.link.removeprefix(REQUEST))
    return None


def settled_among(notifications: QuerySet[Notification]) -> tuple[set[int], set[int]]:
    """Those that ask for a decision which is made, or whose run was stopped; and those whose time was over first."""
    asks = notifications.filter(link__startswith=REQUEST).only("link")
    asked = {one.pk: id for one in asks if (id := approval_of(one))}
    if not asked:
        return set(), set()
    known = Approval.objects.filter(pk__in=set(asked.values()))
    is_over = Q(wait__status=Wait.Status.EXPIRED) | Q(wait__status=Wait.Status.OPEN, wait__due_at__lte=Now())
    expired = set(known.filter(is_over, decision="").values_list("pk", flat=True))
    settled = set(known.exclude(decision="", wait__status=Wait.Status.OPEN).values_list("pk", flat=True)) - expired
    return {pk for pk, id in asked.items() if id in settled}, {pk for pk, id in asked.items() if id in expired}


def unsettled(delivery: Delivery, *, most: int) -> Carried:
    """What a delivery carries now: its own notification and those merged into it, without requests that are settled, and of each alarm
    and incident its last report; open requests first, then expired ones, then the first `most` in all."""
    merged = Delivery.objects.filter(merged_into=delivery.pk)
    all_ = Notification.objects.filter(Q(pk=delivery.notification_id) | Q(pk__in=merged.values("notification")))
    settled, expired = settled_among(all_)
    last_reports = all_.filter(REPORT).order_by().values("link").annotate(last=Max("pk")).values("last")
    left = all_.exclude(pk__in=settled).filter(~REPORT | Q(pk__in=last_reports))
    rank = Case(When(pk__in=expired, then=1), When(link__startswith=REQUEST, then=0), default=2)
    shown = list(left.order_by(rank, "pk")[:most])
    more = left.count() - len(shown) if len(shown) == most else 0
    return Carried(notifications=shown, more=more, expired=expired)


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
