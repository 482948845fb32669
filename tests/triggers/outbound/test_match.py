"""Which events leave, in the commit that dispatches them."""

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from runs.db import trip
from runs.models import Run
from tests.support.outbound import dispatched, statuses, subscribe
from tests.support.triggers import make_event, make_trigger
from triggers.dispatch import listeners
from triggers.dispatch.batch import dispatch
from triggers.dispatch.rules import Rules
from triggers.models import Event, EventDelivery
from triggers.outbound.edit import change_subscription
from triggers.replays.replay import replay
from triggers.sources.manual import fire

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("rules", "leaves"),
    [
        ({}, True),
        ({"types": ["*"]}, True),
        ({"types": ["visitor.left", "visitor.came"]}, True),
        ({"types": ["visitor.left"]}, False),
        ({"sources": ["cli"]}, True),
        ({"sources": ["shop-*", "c?i"]}, True),
        ({"sources": ["shop-*"]}, False),
        ({"filter": "event.data.amount > 100"}, True),
        ({"filter": "event.data.amount > 1000"}, False),
        ({"filter": 'event.data.name == "Ada" && event.source == "cli"'}, True),
        ({"filter": 'event.data.name == "Bob"'}, False),
        ({"enabled": False}, False),
    ],
)
def test_an_event_leaves_by_type_source_and_filter(rules: dict[str, Any], leaves: bool) -> None:
    subscribe(**rules)
    make_event(data={"amount": 101, "name": "Ada"})

    dispatched()

    assert statuses() == (["pending"] if leaves else [])


def test_a_filter_that_cannot_be_evaluated_is_shown_and_sends_nothing() -> None:
    subscribe(filter="event.data.amount > 100")
    subscribe(slug="other")
    make_event(data={})

    dispatched()

    failed = EventDelivery.objects.get(status="error")
    assert failed.name == "shop" and "amount" in failed.reason
    assert statuses(name="other") == ["pending"]


def test_the_event_and_its_deliveries_commit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    subscribe()
    event = make_event()

    def die(point: str) -> None:
        if point == "before_dispatch_commit":
            assert statuses() == ["pending"]
            raise RuntimeError(point)

    with monkeypatch.context() as patched, pytest.raises(RuntimeError):
        patched.setattr(trip, "failpoint", die)
        dispatch(Rules())
    assert statuses() == [] and Event.objects.get(pk=event.pk).dispatched_at is None

    dispatched()
    assert statuses() == ["pending"] and Event.objects.get(pk=event.pk).dispatched_at


def test_replays_targeted_events_and_our_own_do_not_leave() -> None:
    trigger = make_trigger()
    event = make_event()
    dispatched()
    subscribe(types=["*"])
    replay(event, by="test")
    fire(trigger, by="test")
    make_event(type="run.signal")

    dispatched()

    assert statuses() == [] and Run.objects.count() == 3


def test_an_event_that_came_round_too_often_does_not_leave_again(settings: Any) -> None:
    subscribe()
    make_event(depth=settings.WAKEFUL_MAX_DEPTH)
    make_event(depth=settings.WAKEFUL_MAX_DEPTH + 1)

    dispatched()

    assert statuses() == ["pending", "error"]
    assert "WAKEFUL_MAX_DEPTH" in EventDelivery.objects.get(status="error").reason


@pytest.mark.django_db(transaction=True, serialized_rollback=True)
def test_an_edit_holds_from_the_next_batch_on() -> None:
    rules = Rules()
    subscription = subscribe(types=["guest.*"])
    make_event()
    dispatch(rules)
    assert statuses() == []

    change_subscription(subscription, {"types": ["visitor.*"]}, by="test")
    make_event()
    dispatch(rules)
    assert statuses() == ["pending"]


def test_more_deliveries_than_one_transaction_takes_are_left_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "MOST", 3)
    subscribe()
    subscribe(slug="other")
    for _ in range(3):
        make_event()

    assert dispatch(Rules()).dispatched == 1
    dispatched()
    assert len(statuses()) == 6


def test_dispatch_without_subscriptions_has_no_query_for_them() -> None:
    rules = Rules()
    make_event()
    dispatch(rules)
    make_event()

    with CaptureQueriesContext(connection) as captured:
        assert dispatch(rules).dispatched == 1

    assert not [one["sql"] for one in captured if "subscription" in one["sql"] or "eventdelivery" in one["sql"]]
