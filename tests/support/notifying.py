"""Recipients and notifications for tests, and a deliverer that works until nothing is left to do."""

import time
from datetime import UTC, timedelta
from typing import Any

from django.db.models.functions import Now

from runs.db.sql import database_now
from runs.models import Delivery, Notification, Recipient
from runs.notifications.channels.channel import channel_of, channels
from runs.notifications.deliver import Deliverer
from tests.support.stack import PATIENCE

NONE = timedelta()


def make_recipient(name: str = "ops", address: str = "inbox:ops", **rules: Any) -> Recipient:
    """A row, without the services: its address needs no key, even if it has secrets."""
    channel = channel_of(address)
    assert channel
    return Recipient.objects.create(
        name=name, address=address, channel=channel.name, host=channel.host(address), **{"spacing": NONE, **rules}
    )


def notify(text: str = "Hello", **fields: Any) -> Notification:
    return Notification.objects.create(sender="greeter", text=text, **fields)


def quiet_now() -> dict[str, Any]:
    """Quiet hours, in UTC, that have begun and go on for longer than a test, whatever the time of day."""
    now = database_now().astimezone(UTC)
    return {"quiet_from": (now - timedelta(hours=1)).time(), "quiet_until": (now + timedelta(hours=6)).time()}


def delivered(deliverer: Deliverer | None = None) -> Deliverer:
    """Plan and send until no message is under way and none is due."""
    deliverer = deliverer or Deliverer()
    give_up_at = time.monotonic() + PATIENCE
    while (wait := deliverer.deliver_some()) == 0 or deliverer.sending.under_way:
        assert time.monotonic() < give_up_at, f"{deliverer.sending.under_way} under way"
        time.sleep(min(wait, 0.01))
    late = Delivery.objects.filter(status="pending", attempts=0, due_at__lte=Now(), channel__in=channels())
    assert not late.exists(), (statuses(), deliverer.breakers)
    return deliverer


def statuses(**which: Any) -> list[str]:
    """Of the deliveries, in the order of their notifications."""
    return list(Delivery.objects.filter(**which).order_by("notification_id", "id").values_list("status", flat=True))


def make_due() -> None:
    """Whatever waits is due now."""
    Delivery.objects.filter(status__in=["pending", "held", "sending"]).update(
        due_at=database_now() - timedelta(seconds=1)
    )
