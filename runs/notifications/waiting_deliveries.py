"""Deliveries that wait: what else may happen to them besides being sent."""

from collections.abc import Mapping

from django.db import transaction
from django.db.models import Max, Q
from django.db.models.functions import Now

from runs.db.sql import database_now
from runs.models import Delivery, Recipient
from runs.notifications.lock import lock_planning
from runs.notifications.other_routes import take_second_route
from runs.notifications.plan import patience
from runs.notifications.policy import earliest
from runs.notifications.recipients import rules_of

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
    merged = Delivery.objects.filter(merged_into__id__among=carriers).update(**ended, merged_into=None)
    return merged + Delivery.objects.filter(id__among=carriers).update(**ended)


def leave_out(delivery: Delivery, why: Mapping[int, str]) -> None:
    """Record which notifications a message does not contain, so that none of them seems to be sent with it."""
    if not why:
        return
    with transaction.atomic():
        lock_planning()
        for reason in sorted(set(why.values())):
            ids = [id for id, one in why.items() if one == reason]
            ended = {"status": Delivery.Status.SUPPRESSED, "reason": reason, "ended_at": Now(), "merged_into": None}
            Delivery.objects.filter(merged_into=delivery.pk, notification__id__among=ids).update(**ended)
        if own := why.get(delivery.notification_id):
            Delivery.objects.filter(pk=delivery.pk).update(reason=f"carries the others; its own is {own}")


def call_off(recipient: Recipient, *, reason: str) -> int:
    """Suppress what waits for a recipient; urgent messages take the second route, as they do while it is silenced."""
    lock_planning()
    if recipient.second_id is not None:
        urgent = Delivery.objects.select_for_update(of=["self"]).filter(
            recipient=recipient, status__in=WAITING, is_urgent=True
        )
        for delivery in urgent.order_by("id"):
            take_second_route(delivery)
    return suppress_waiting(Q(recipient=recipient), reason=reason)


def put_off(recipient: Recipient) -> int:
    """What waits for a recipient and is not urgent goes out as soon as its rules allow it after its silence; if there is none,
    from now on. In the caller's transaction; returns how many."""
    lock_planning()
    now = database_now()
    theirs = Delivery.objects.filter(recipient=recipient)
    last_at = theirs.filter(status=Delivery.Status.SENT).aggregate(last_at=Max("sent_at"))["last_at"]
    is_silenced = recipient.silenced_until is not None and recipient.silenced_until > now
    begins = recipient.silenced_until if recipient.silenced_until and is_silenced else now
    at, reason = earliest(rules_of(recipient), last_at, begins)
    if is_silenced:
        zone = rules_of(recipient).zone
        reason = f"silenced until {begins.astimezone(zone):%Y-%m-%d %H:%M} ({zone.key})"
    waiting = theirs.filter(Q(due_at__lt=at) if is_silenced else Q(due_at__gt=at), status__in=WAITING, is_urgent=False)
    return waiting.update(due_at=at, give_up_at=at + patience(recipient), reason=reason or "its silence has ended")
