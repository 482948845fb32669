"""What people say about deliveries: it arrived, send it again, I have seen it."""

from typing import Literal, get_args
from uuid import UUID

from django.db import transaction
from django.db.models.functions import Now

from agents.guards.atomic import not_in_atomic_body
from runs.db.nudge import nudge_dispatcher
from runs.db.sql import database_now
from runs.exceptions import IllegalState
from runs.models import Delivery, audit
from runs.notifications.plan import patience
from runs.notifications.requests import hold_outcome

Answer = Literal["arrived", "send_again"]
# What may have been seen, one way or another.
SEEN = (Delivery.Status.SENT, Delivery.Status.UNKNOWN, Delivery.Status.FAILED, Delivery.Status.MERGED)


@not_in_atomic_body
def resolve(delivery_id: UUID, *, outcome: Answer, by: str) -> Delivery:
    """Record that an unknown delivery arrived, or send an unknown or failed one again. Raises Delivery.DoesNotExist, ValueError for
    an invalid answer, and IllegalState if its status forbids it."""
    if outcome not in get_args(Answer):
        raise ValueError(f"outcome is one of {', '.join(get_args(Answer))}, not {outcome!r}")
    with transaction.atomic():
        delivery = _lock(delivery_id)
        if delivery.status == Delivery.Status.UNKNOWN and outcome == "arrived":
            delivery.status, delivery.ended_at = Delivery.Status.SENT, database_now()
            delivery.sent_at, delivery.reason = delivery.ended_at, f"{by} confirmed that it arrived"
        elif delivery.status in (Delivery.Status.UNKNOWN, Delivery.Status.FAILED) and outcome == "send_again":
            _send_again(delivery, by)
        else:
            allowed = "an unknown" if outcome == "arrived" else "an unknown or failed"
            raise IllegalState(
                f"delivery {delivery_id} is {delivery.status}; {outcome} is for {allowed} one", delivery.status
            )
        delivery.claim = None  # a late word of its attempt does not count any more
        delivery.save()
        audit.record(by, "resolve", delivery, outcome=outcome)
    return delivery


@not_in_atomic_body
def acknowledge(delivery_id: UUID, *, by: str) -> Delivery:
    """Say that the message was seen. A second time changes nothing. IllegalState: nothing was sent yet."""
    with transaction.atomic():
        delivery = _lock(delivery_id)
        if delivery.status not in SEEN:
            raise IllegalState(
                f"delivery {delivery_id} is {delivery.status}: there is nothing to see yet", delivery.status
            )
        if Delivery.objects.filter(pk=delivery_id, acknowledged_at=None).update(
            acknowledged_at=Now(), acknowledged_by=by
        ):
            audit.record(by, "acknowledge", delivery)
    delivery.refresh_from_db()
    return delivery


def _send_again(delivery: Delivery, by: str) -> None:
    if delivery.recipient is None and delivery.place is None:
        raise IllegalState(f"the recipient of delivery {delivery.pk} was removed", delivery.status)
    if delivery.recipient is not None and not delivery.recipient.active:
        raise IllegalState(f"recipient {delivery.recipient.name} is inactive: activate it first", "inactive")
    now = database_now()
    delivery.status, delivery.reason, delivery.ended_at = Delivery.Status.PENDING, f"sent again by {by}", None
    delivery.due_at, delivery.give_up_at, delivery.attempts = now, now + patience(delivery.recipient), 0
    hold_outcome(delivery, now)
    nudge_dispatcher()


def _lock(delivery_id: UUID) -> Delivery:
    return Delivery.objects.select_for_update(of=["self"]).select_related("recipient").get(pk=delivery_id)
