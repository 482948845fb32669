"""The notifications that a message carries: its own, and those merged into it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db.models import Count

from runs.models import Delivery, Notification


@dataclass(frozen=True, kw_only=True)
class Carried:
    """In the order in which they were written; `more`: how many beyond."""

    notifications: Sequence[Notification]
    more: int


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
