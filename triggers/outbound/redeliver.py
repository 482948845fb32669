"""Send events to a subscription again: one, or all that failed since a time. `webhook-id` stays, so that a receiver that has handled
it before does nothing."""

from datetime import datetime
from uuid import UUID

from django.db import transaction

from agents.guards.atomic import not_in_atomic_body
from agents.kernel.ids import first_id_at
from runs.db.nudge import nudge_dispatcher
from runs.db.sql import execute
from runs.exceptions import IllegalState
from runs.models.audit import record
from triggers.exceptions import PayloadRemoved
from triggers.models import Event, EventDelivery, Subscription

MOST = 10_000  # of one request
AGAIN = """
UPDATE triggers_eventdelivery SET status = 'pending', due_at = clock_timestamp(), entered_at = clock_timestamp(), ended_at = NULL,
  attempts = 0, reason = 'redelivered'
WHERE id = ANY({which})
"""
ONE = AGAIN.format(which="ARRAY[%(delivery)s::uuid]")
# In the order of their events. A payload that is removed meanwhile makes its delivery fail again.
FAILED = AGAIN.format(
    which="""ARRAY(
  SELECT failed.id FROM triggers_eventdelivery failed
  WHERE failed.subscription_id = %(subscription)s::uuid AND failed.status = 'failed' AND failed.id >= %(since)s::uuid
    AND EXISTS (SELECT FROM triggers_event event WHERE event.id = failed.event_id AND event.payload_removed_at IS NULL)
  ORDER BY failed.id LIMIT %(most)s::int FOR UPDATE SKIP LOCKED)"""
)


@not_in_atomic_body
def redeliver(delivery_id: UUID, *, by: str) -> EventDelivery:
    """Send it again now; its schedule begins again. Raises IllegalState and PayloadRemoved."""
    with transaction.atomic():
        event_id = EventDelivery.objects.values_list("event_id", flat=True).get(pk=delivery_id)
        # Locked, as in retention: it either sees this delivery or was earlier.
        if not Event.objects.select_for_update(of=("self",)).filter(pk=event_id, payload_removed_at=None).exists():
            raise PayloadRemoved(event_id)
        row = EventDelivery.objects.select_for_update(of=("self",)).get(pk=delivery_id)
        require_enabled(Subscription.objects.filter(pk=row.subscription_id).first())
        if row.due_at is not None:
            raise IllegalState("It is on its way already.", row.status)
        if row.status == EventDelivery.Status.ERROR:  # who may redeliver does not decide where data goes
            raise IllegalState(f"It was not to be sent: {row.reason}", row.status)
        execute(ONE, {"delivery": row.pk})
        record(by, "redeliver", row, subscription=row.name)
        nudge_dispatcher()
    row.refresh_from_db()
    return row


@not_in_atomic_body
def redeliver_failed(subscription: Subscription, *, since: datetime, by: str) -> int:
    """Send all that failed and were entered since then, at most MOST; returns how many."""
    with transaction.atomic():
        row = Subscription.objects.select_for_update().get(pk=subscription.pk)
        require_enabled(row)
        count = execute(FAILED, {"subscription": row.pk, "since": first_id_at(since), "most": MOST})
        record(by, "redeliver", row, since=since.isoformat(), deliveries=count)
        nudge_dispatcher()
    return count


def require_enabled(subscription: Subscription | None) -> None:
    if subscription is None:
        raise IllegalState("Its subscription was deleted.", "deleted")
    if not subscription.enabled:
        raise IllegalState(f"Subscription {subscription.slug} is disabled: enable it first.", "disabled")
