"""Send a test event to a subscription, through its queue."""

from uuid import uuid4

from django.db import transaction
from django.db.models.functions import Now

from agents.guards.atomic import not_in_atomic_body
from runs.models.audit import record
from triggers.accept import Incoming, accept, builtin_source
from triggers.models import Event, EventDelivery, Subscription
from triggers.outbound.redeliver import require_enabled

TYPE = "subscription.test"  # not a reserved one, because another Wakeful would refuse it


@not_in_atomic_body
def send_test(subscription: Subscription, *, by: str) -> EventDelivery:
    """Its event wakes no agent here and leaves to no other subscription. Raises IllegalState."""
    event = Incoming(
        source_id=builtin_source("manual"),
        ce_source=f"/subscriptions/{subscription.slug}",
        ce_id=str(uuid4()),
        type=TYPE,
        data={"subscription": subscription.slug, "message": "A test event: the subscription works."},
    )
    with transaction.atomic():
        row = Subscription.objects.select_for_update().get(pk=subscription.pk)
        require_enabled(row)
        [accepted] = accept([event])
        Event.objects.filter(pk=accepted.event_id).update(dispatched_at=Now())
        delivery = EventDelivery.objects.create(
            event_id=accepted.event_id,
            subscription=row,
            name=row.slug,
            status=EventDelivery.Status.PENDING,
            due_at=Now(),
        )
        record(by, "send test event", row, event=str(accepted.event_id))
    delivery.refresh_from_db()
    return delivery
