"""Deliveries that wait: what else may happen to them besides being sent."""

from django.db.models import Q
from django.db.models.functions import Now

from runs.models import Delivery
from runs.notifications.lock import lock_planning

WAITING = (Delivery.Status.PENDING, Delivery.Status.HELD)


def suppress_waiting(which: Q, *, reason: str) -> int:
    """Suppress those that wait, and what is merged into them, in the caller's transaction; returns how many."""
    lock_planning()
    waiting = Delivery.objects.select_for_update(of=["self"]).filter(which, status__in=WAITING)
    carriers = list(waiting.values_list("id", flat=True))
    ended = {
        "status": Delivery.Status.SUPPRESSED,
        "reason": reason,
        "due_at": None,
        "give_up_at": None,
        "ended_at": Now(),
    }
    merged = Delivery.objects.filter(merged_into__in=carriers).update(**ended, merged_into=None)
    return merged + Delivery.objects.filter(id__in=carriers).update(**ended)
