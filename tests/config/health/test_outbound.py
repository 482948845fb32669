"""Metrics of subscriptions and of what leaves to them."""

import pytest

from tests.config.health.test_metrics import scrape
from tests.support.outbound import dispatched, subscribe
from tests.support.triggers import make_event
from triggers.outbound.edit import change_subscription, end_all_waiting

pytestmark = pytest.mark.django_db


def test_metrics_count_deliveries_and_subscriptions() -> None:
    subscription = subscribe()
    change_subscription(subscribe(slug="other"), {"enabled": False}, by="test")
    make_event()
    dispatched()
    end_all_waiting(subscription.pk, "it answered 500")
    make_event()
    dispatched()

    metrics = scrape()

    assert metrics["wakeful_event_deliveries", "failed"] == metrics["wakeful_event_deliveries", "pending"] == 1
    assert metrics["wakeful_subscriptions", "enabled"] == metrics["wakeful_subscriptions", "disabled"] == 1
    assert metrics["wakeful_event_delivery_late_seconds",] > 0
