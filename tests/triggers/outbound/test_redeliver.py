"""Events are sent again: one, or all that failed since a time."""

from datetime import timedelta
from typing import Any

import pytest

from runs.db.sql import database_now
from runs.exceptions import IllegalState
from runs.models import AuditEntry
from tests.support.outbound import dispatched, statuses, subscribe
from tests.support.triggers import make_event
from triggers.exceptions import PayloadRemoved
from triggers.models import EventDelivery, Subscription
from triggers.outbound.edit import change_subscription, end_all_waiting
from triggers.outbound.redeliver import redeliver, redeliver_failed
from triggers.retention.erasure import erase_event
from triggers.retention.payloads import not_leaving, remove_payloads
from triggers.retention.prune import delete_events

pytestmark = pytest.mark.django_db


def failed(number: int = 1) -> Subscription:
    subscription = subscribe()
    for _ in range(number):
        make_event()
    dispatched()
    end_all_waiting(subscription.pk, "it answered 500; given up after 10 attempts")
    return subscription


def test_a_redelivery_has_the_same_id_and_a_retry_schedule_of_its_own() -> None:
    failed()
    before = EventDelivery.objects.get()
    EventDelivery.objects.update(attempts=10)

    after = redeliver(before.pk, by="test")

    assert (after.status, after.attempts, after.webhook_id) == ("pending", 0, before.webhook_id)
    assert after.due_at and AuditEntry.objects.filter(kind="eventdelivery", action="redeliver").exists()
    with pytest.raises(IllegalState, match="on its way"):
        redeliver(before.pk, by="test")


def test_all_deliveries_that_failed_since_a_time_are_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    subscription = failed(3)
    delivered = EventDelivery.objects.order_by("id")[1]
    EventDelivery.objects.filter(pk=delivered.pk).update(status="delivered", reason="")
    now = database_now()

    assert redeliver_failed(subscription, since=now + timedelta(minutes=1), by="test") == 0
    assert redeliver_failed(subscription, since=now - timedelta(minutes=1), by="test") == 2
    assert statuses() == ["pending", "delivered", "pending"]


def test_a_disabled_subscription_and_a_removed_payload_refuse() -> None:
    subscription = failed()
    delivery = EventDelivery.objects.get()
    change_subscription(subscription, {"enabled": False}, by="test")
    with pytest.raises(IllegalState, match="disabled"):
        redeliver(delivery.pk, by="test")
    with pytest.raises(IllegalState, match="disabled"):
        redeliver_failed(subscription, since=database_now(), by="test")

    change_subscription(subscription, {"enabled": True}, by="test")
    remove_payloads([delivery.event_id])
    with pytest.raises(PayloadRemoved):
        redeliver(delivery.pk, by="test")
    assert redeliver_failed(subscription, since=database_now() - timedelta(days=1), by="test") == 0


def test_a_delivery_that_the_filter_stopped_is_not_redelivered() -> None:
    subscribe(filter="event.data.is_public")
    make_event(data={})
    dispatched()

    with pytest.raises(IllegalState, match="not to be sent: its filter"):
        redeliver(EventDelivery.objects.get(status="error").pk, by="test")

    assert statuses() == ["error"]


def answers(**fields: Any) -> list[dict[str, Any]]:
    return [{"at": database_now().isoformat(), "status": 500, "seconds": 0.1, "answer": "Ada?", "error": "", **fields}]


def test_retention_waits_for_what_is_to_leave_and_then_removes_the_answers() -> None:
    subscribe()
    event = make_event()
    dispatched()
    assert not_leaving([event.pk]) == []

    EventDelivery.objects.update(
        status="error", reason="Ada is no number", due_at=None, ended_at=database_now(), tries=answers()
    )
    assert not_leaving([event.pk]) == [event.pk]
    remove_payloads([event.pk])
    assert EventDelivery.objects.values_list("reason", "tries").get() == ("(erased)", [])

    delete_events([event.pk])
    assert not EventDelivery.objects.exists()


def test_an_erasure_calls_off_what_waits_and_removes_the_answers() -> None:
    subscribe()
    event = make_event()
    dispatched()
    EventDelivery.objects.update(tries=answers())

    assert erase_event(event, by="test").events == 1

    delivery = EventDelivery.objects.get()
    assert (delivery.status, delivery.reason, delivery.tries) == ("failed", "its event was erased", [])
