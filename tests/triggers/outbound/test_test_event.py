"""A test event leaves through the queue of its subscription, to it alone, and wakes no agent."""

import json
from typing import Any

import pytest

from runs.exceptions import IllegalState
from runs.models import Run
from tests.support.api import Api
from tests.support.outbound import sent, statuses, subscribe
from tests.support.post_office import taking_hooks
from tests.support.triggers import make_trigger
from triggers.models import EventDelivery
from triggers.outbound.edit import change_subscription
from triggers.outbound.test_event import TYPE, send_test

pytestmark = pytest.mark.django_db


def test_a_test_event_leaves_to_its_subscription_alone(settings: Any) -> None:
    settings.WAKEFUL_OUTBOUND_NETWORKS = ["127.0.0.0/8"]
    make_trigger("any", types=["*"])
    with taking_hooks() as hook, taking_hooks() as other:
        subscribe(hook.url, types=["order.*"], sources=["shop"])
        subscribe(other.url, "other", types=["*"])

        entered = Api().post("subscriptions/shop/test/")
        sent()

        assert (entered.status, entered.body["status"], entered.body["subscription"]) == (200, "pending", "shop")
        [posted] = hook.posted
        body = json.loads(posted.body)
        assert (body["type"], body["source"], body["data"]["subscription"]) == (TYPE, "/subscriptions/shop", "shop")
        assert posted.headers["webhook-id"] == entered.body["webhook_id"]
        assert statuses() == ["delivered"] and not other.posted and not Run.objects.exists()


def test_a_disabled_subscription_sends_no_test_event() -> None:
    subscription = subscribe()
    change_subscription(subscription, {"enabled": False}, by="test")

    with pytest.raises(IllegalState):
        send_test(subscription, by="test")

    assert Api().post("subscriptions/shop/test/").status == 409
    assert not EventDelivery.objects.exists()
