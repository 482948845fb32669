"""Notifications, deliveries and recipients over HTTP."""

from typing import Any

import pytest

from runs.models import Delivery, Notification
from tests.support.api import Api
from tests.support.notifying import delivered, make_recipient, notify
from tests.support.runs import make_run

pytestmark = pytest.mark.django_db


def unknown() -> Any:
    make_recipient()
    return Delivery.objects.create(
        notification=notify(), recipient=make_recipient("ada"), name="ada", status="unknown", reason="cut"
    )


def test_what_was_said_and_what_became_of_it() -> None:
    run = make_run()
    make_recipient()
    notify("a", run_id=run.id, topic="t", to=["ops"])
    notify("b")
    delivered()
    api = Api(["runs.view_notification", "runs.view_delivery"])

    [told] = api.get("notifications/", run=str(run.id)).body["results"]
    [became] = api.get("deliveries/", notification=told["id"]).body["results"]

    assert (told["text"], told["topic"], told["to"]) == ("a", "t", ["ops"])
    assert (became["recipient"], became["status"], became["channel"]) == ("ops", "sent", "inbox")
    assert api.get("deliveries/", status="failed").body["results"] == []
    assert len(api.get("deliveries/", recipient="ops").body["results"]) == 2
    assert api.get(f"deliveries/{became['id']}/").body == became
    assert api.get(f"notifications/{told['id']}/").body == told
    assert "status" in api.get("deliveries/", status="lost").body


def test_a_recipient_is_shown_without_its_secrets() -> None:
    make_recipient(second=make_recipient("night"), address="inbox:ada")
    api = Api(["runs.view_recipient"])

    names = {one["name"]: one["second"] for one in api.get("recipients/").body["results"]}

    assert names == {"night": None, "ops": "night"}
    assert "ciphertext" not in api.get("recipients/").body["results"][0]


def test_an_unknown_delivery_is_resolved_once() -> None:
    delivery = unknown()
    api = Api(["runs.resolve_delivery"])

    assert api.post(f"deliveries/{delivery.pk}/resolve/", {"outcome": "lost"}).status == 400
    resolved = api.post(f"deliveries/{delivery.pk}/resolve/", {"outcome": "arrived"})
    again = api.post(f"deliveries/{delivery.pk}/resolve/", {"outcome": "arrived"})

    assert (resolved.status, resolved.body["status"]) == (200, "sent")
    assert (again.status, again.body["status"]) == (409, "sent")


def test_a_delivery_is_acknowledged() -> None:
    delivery = unknown()

    answer = Api(["runs.acknowledge_delivery"]).post(f"deliveries/{delivery.pk}/acknowledge/")

    assert answer.body["acknowledged_by"].startswith("token:ci")


def test_a_test_is_sent() -> None:
    recipient = make_recipient()

    answer = Api(["runs.test_recipient"]).post(f"recipients/{recipient.pk}/test/")
    delivered()

    assert (answer.status, answer.body["status"]) == (200, "pending")
    assert Delivery.objects.get().status == "sent"
    assert Notification.objects.get().text.startswith("This is a test of the recipient ops")


@pytest.mark.parametrize("path", ["deliveries/{}/resolve/", "deliveries/{}/acknowledge/", "recipients/{}/test/"])
def test_who_may_only_look_changes_nothing(path: str) -> None:
    delivery = unknown()
    pk = delivery.pk if path.startswith("deliveries") else delivery.recipient.pk

    answer = Api(["runs.view_delivery", "runs.view_recipient"]).post(path.format(pk), {"outcome": "arrived"})

    assert answer.status == 403
