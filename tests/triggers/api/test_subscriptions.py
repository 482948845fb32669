"""Subscriptions over HTTP."""

from datetime import timedelta
from typing import Any

import pytest

from runs.db.sql import database_now
from tests.support.api import Api
from tests.support.outbound import SECRET, dispatched, subscribe
from tests.support.triggers import make_event
from triggers.models import EventDelivery, Subscription
from triggers.outbound.edit import end_all_waiting

pytestmark = pytest.mark.django_db

NEW: dict[str, Any] = {"slug": "shop", "url": "https://example.com/secret-path", "types": ["visitor.*"]}


def test_the_life_of_a_subscription() -> None:
    api = Api()
    made = api.post("subscriptions/", NEW)
    assert made.status == 201 and made.body["secret"].startswith("whsec_")
    assert made.body["address"] == "https://example.com/…"

    rotated = api.post("subscriptions/shop/rotate/", {"grace": "1h", "secret": SECRET})
    assert rotated.body == {"secret": SECRET}
    changed = api.patch("subscriptions/shop/", {"filter": "event.data.amount > 100", "sources": ["cli"]})
    assert (changed.status, changed.body["sources"]) == (200, ["cli"])
    assert "secret-path" not in str(api.get("subscriptions/").body) and "secret" not in changed.body

    assert api.delete("subscriptions/shop/").status == 204
    assert api.get("subscriptions/shop/").status == 404


@pytest.mark.parametrize(
    ("change", "field"),
    [({"filter": "event."}, "filter"), ({"types": []}, "types"), ({"url": "nowhere"}, "url"), ({"name": "x"}, "name")],
)
def test_a_fault_stands_at_its_field(change: dict[str, Any], field: str) -> None:
    subscribe()

    answer = Api().patch("subscriptions/shop/", change)

    assert answer.status == 400 and list(answer.body) == [field]


def test_deliveries_are_listed_and_sent_again() -> None:
    subscription = subscribe()
    event = make_event()
    dispatched()
    end_all_waiting(subscription.pk, "it answered 500")
    api = Api()

    [listed] = api.get("event-deliveries/", subscription="shop", status="failed", event=str(event.pk)).body["results"]
    assert (listed["subscription"], listed["reason"], listed["event"]) == ("shop", "it answered 500", str(event.pk))
    assert api.get("event-deliveries/", subscription="other").body["results"] == []
    again = api.post(f"event-deliveries/{listed['id']}/redeliver/")
    assert (again.status, again.body["status"], again.body["webhook_id"]) == (200, "pending", listed["webhook_id"])
    assert api.post(f"event-deliveries/{listed['id']}/redeliver/").status == 409

    end_all_waiting(subscription.pk, "it answered 500")
    since = (database_now() - timedelta(hours=1)).isoformat()
    assert api.post("subscriptions/shop/redeliver/", {"since": since}).body == {"deliveries": 1}
    assert EventDelivery.objects.get().status == "pending"


def test_each_action_needs_its_permission() -> None:
    subscribe()
    api = Api(["triggers.view_subscription"])

    assert api.get("subscriptions/shop/").status == 200
    for path, body in (("", NEW), ("shop/rotate/", {}), ("shop/redeliver/", {"since": "2026-01-01"})):
        assert api.post(f"subscriptions/{path}", body).status == 403
    assert api.delete("subscriptions/shop/").status == 403 and Subscription.objects.exists()
