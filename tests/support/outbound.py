"""Subscriptions for tests, and a sender that works until nothing is left to do."""

import time
from typing import Any

from tests.support.stack import PATIENCE
from triggers.dispatch.batch import dispatch
from triggers.dispatch.rules import Rules
from triggers.models import EventDelivery, Subscription
from triggers.outbound.deliver import Outbound
from triggers.outbound.edit import create_subscription

SECRET = "whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def subscribe(url: str = "https://example.com/hooks", slug: str = "shop", **rules: Any) -> Subscription:
    made, _ = create_subscription(slug, url=url, by="test", **{"types": ["visitor.*"], "secret": SECRET, **rules})
    return made


def subscribe_unchecked(slug: str, filter: str, **rules: Any) -> None:
    """A subscription with a filter that is refused today when it is saved."""
    Subscription.objects.filter(pk=subscribe(slug=slug, **rules).pk).update(filter=filter)


def dispatched() -> None:
    while dispatch(Rules()).dispatched:
        pass


def sent(outbound: Outbound | None = None) -> Outbound:
    """Dispatch what came, and send until no event is under way and none that is due can be sent."""
    dispatched()
    outbound = outbound or Outbound()
    give_up_at = time.monotonic() + PATIENCE
    while (wait := outbound.deliver_some()) == 0 or outbound.sending.under_way:
        assert time.monotonic() < give_up_at, f"{outbound.sending.under_way} under way"
        time.sleep(min(wait, 0.01))
    return outbound


def statuses(**which: Any) -> list[str]:
    return list(EventDelivery.objects.filter(**which).order_by("id").values_list("status", flat=True))


def make_due(**which: Any) -> None:
    """What waits, or is being sent, is due now."""
    from datetime import timedelta

    from runs.db.sql import database_now

    open_ = EventDelivery.objects.filter(status__in=["pending", "sending"], **which)
    open_.update(due_at=database_now() - timedelta(seconds=1))
