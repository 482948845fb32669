"""Notifications, deliveries and recipients over HTTP."""

from typing import Any

import pytest
from django.contrib.auth.models import User

from runs.models import AuditEntry, Delivery, Notification
from tests.support.api import Api
from tests.support.notifying import delivered, make_recipient, notify
from tests.support.runs import make_run

pytestmark = pytest.mark.django_db


def unknown() -> Any:
    make_recipient()
    return Delivery.objects.create(
        notification=notify(), recipient=make_recipient("ada"), name="ada", status="unknown", reason="cut"
    )


def test_notifications_and_their_deliveries_are_listed_and_filtered() -> None:
    run = make_run()
    make_recipient()
    notify("a", run_id=run.id, topic="t", to=["ops"])
    notify("b")
    delivered()
    api = Api(["runs.view_notification", "runs.view_delivery"])

    [notification] = api.get("notifications/", run=str(run.id)).body["results"]
    [became] = api.get("deliveries/", notification=notification["id"]).body["results"]

    assert (notification["text"], notification["topic"], notification["to"]) == ("a", "t", ["ops"])
    assert (became["recipient"], became["status"], became["channel"]) == ("ops", "sent", "inbox")
    assert api.get("deliveries/", status="failed").body["results"] == []
    assert len(api.get("deliveries/", recipient="ops").body["results"]) == 2
    assert api.get(f"deliveries/{became['id']}/").body == became
    assert api.get(f"notifications/{notification['id']}/").body == notification
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


def make_user(name: str = "ada") -> None:
    User.objects.create_user(name, is_staff=True)


def test_a_recipient_is_created_changed_silenced_and_deleted() -> None:
    make_user()
    make_recipient("night", gets_all=False)
    api = Api()

    made = api.post("recipients/", {"name": "ops", "address": "inbox:ada", "spacing": "45m", "second": "night"})
    path = f"recipients/{made.body['id']}/"
    changed = api.patch(path, {"quiet_from": "22:00", "quiet_until": "07:00", "spacing": 60, "second": None})
    silenced = api.post(f"{path}silence/", {"length": "1d"})
    ended = api.post(f"{path}silence/", {"length": None})

    assert (made.status, made.body["spacing"], made.body["second"]) == (201, 2700, "night")
    assert (changed.body["quiet_from"], changed.body["spacing"], changed.body["second"]) == ("22:00:00", 60, None)
    assert silenced.body["silenced_until"] and ended.body["silenced_until"] is None
    assert api.delete(path).status == 204
    assert api.get(path).status == 404
    actions = AuditEntry.objects.filter(kind="recipient").order_by("id").values_list("action", flat=True)
    assert list(actions) == ["create", "change", "change", "change", "remove"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"address": "ops@example.com"}, "address"),
        ({"zone": "Vienna"}, "zone"),
        ({"quiet_from": "22:00"}, "quiet_until"),
        ({"spacing": "often"}, "spacing"),
        ({"spacing": "9000000d"}, "spacing"),
        ({"digest_hour": 24}, "digest_hour"),
        ({"second": "unknown"}, "second"),
        ({"second": "ops"}, "second"),
        ({"silenced_until": "9999-12-31T23:59:59Z"}, "silenced_until"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_fault_is_answered_under_its_field(body: Any, field: str) -> None:
    recipient = make_recipient()

    answer = Api().patch(f"recipients/{recipient.pk}/", body)

    assert (answer.status, list(answer.body)) == (400, [field])


def test_a_group_is_created_changed_and_deleted() -> None:
    make_recipient("ops")
    make_recipient("night")
    api = Api()

    made = api.post("recipient-groups/", {"name": "office", "members": ["ops", "night"]})
    path = f"recipient-groups/{made.body['id']}/"
    unknown = api.patch(path, {"members": ["unknown"]})
    refused = api.patch(path, {"name": "ops"})
    changed = api.patch(path, {"members": ["ops"]})

    assert (made.status, made.body["members"]) == (201, ["night", "ops"])
    assert (unknown.status, list(unknown.body)) == (400, ["members"])
    assert (refused.status, list(refused.body)) == (400, ["name"])
    assert changed.body["members"] == ["ops"] and api.get("recipient-groups/").body["results"] == [changed.body]
    assert api.delete(path).status == 204


def test_a_test_is_sent() -> None:
    recipient = make_recipient()

    answer = Api(["runs.test_recipient"]).post(f"recipients/{recipient.pk}/test/")
    delivered()

    assert (answer.status, answer.body["status"]) == (200, "pending")
    assert Delivery.objects.get().status == "sent"
    assert Notification.objects.get().text.startswith("This is a test of the recipient ops")


@pytest.mark.parametrize(
    "path",
    ["deliveries/{}/resolve/", "deliveries/{}/acknowledge/", "recipients/{}/test/", "recipients/{}/silence/"],
)
def test_who_may_only_look_changes_nothing(path: str) -> None:
    delivery = unknown()
    pk = delivery.pk if path.startswith("deliveries") else delivery.recipient.pk

    answer = Api(["runs.view_delivery", "runs.view_recipient"]).post(path.format(pk), {"outcome": "arrived"})

    assert answer.status == 403
