"""The inbox of a user of the console: what was sent to `inbox:<user>`, and what of it is unread."""

from datetime import datetime

from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from agents.guards.atomic import not_in_atomic_body
from runs.models import Delivery, Recipient, audit
from runs.notifications.channels.inbox import CHANNEL, PREFIX
from runs.users import may_enter, user_named

AT_ONCE = 10_000  # messages acknowledged by one click


def has_reader(address: str) -> bool:
    """Whether this inbox belongs to a user who may log in. Whatever is sent to another one counts as sent, and no one reads it."""
    user = user_named(address.removeprefix(PREFIX))
    return user is not None and may_enter(user)


def inboxes_of(username: str) -> QuerySet[Recipient]:
    return Recipient.objects.filter(channel=CHANNEL.name, address=f"{PREFIX}{username}")


def messages_of(username: str) -> QuerySet[Delivery]:
    """The newest first."""
    inboxes = inboxes_of(username).order_by().values("pk")
    arrived = Delivery.objects.filter(status=Delivery.Status.SENT, channel=CHANNEL.name)
    return arrived.filter(recipient__in=inboxes).order_by("-sent_at", "-id")


def unread(username: str) -> QuerySet[Delivery]:
    return messages_of(username).filter(acknowledged_at=None)


@not_in_atomic_body
def acknowledge_all(username: str, *, until: datetime, by: str) -> int:
    """Acknowledge what arrived until then, so that nothing counts as read that the user has not seen; returns how many."""
    with transaction.atomic():
        seen = unread(username).filter(sent_at__lte=until).reverse()
        ids = list(seen.values_list("pk", flat=True)[:AT_ONCE])
        count = Delivery.objects.filter(pk__among=ids, acknowledged_at=None).update(
            acknowledged_at=Now(), acknowledged_by=by
        )
        if count:
            audit.record_about(by, "acknowledge all", "inbox", username, deliveries=count)
    return count
