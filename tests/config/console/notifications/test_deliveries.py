"""The pages of deliveries: a person confirms that one arrived, sends it again, or acknowledges it."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from runs.models import AuditEntry, Delivery
from runs.notifications.plan import plan
from tests.config.console.test_actions import choose, press
from tests.support.console import page_of
from tests.support.notifying import delivered, make_recipient, notify

pytestmark = pytest.mark.django_db


def delivery(status: str, **fields: Any) -> Delivery:
    recipient = make_recipient(f"ops-{Delivery.objects.count()}")
    return Delivery.objects.create(
        notification=notify(planned_at=timezone.now()),
        recipient=recipient,
        name=recipient.name,
        status=status,
        reason="cut",
        **fields,
    )


def buttons(client: Client, one: Delivery) -> set[str]:
    page = client.get(page_of("runs_delivery", one)).content.decode()
    return {name for name in ("arrived", "send-again", "acknowledge") if f"/{one.pk}/{name}" in page}


@pytest.mark.parametrize(
    ("status", "shown"),
    [
        ("unknown", {"arrived", "send-again", "acknowledge"}),
        ("failed", {"send-again", "acknowledge"}),
        ("suppressed", set()),
    ],
)
def test_a_delivery_has_the_buttons_that_its_status_allows(admin: Client, status: str, shown: set[str]) -> None:
    assert buttons(admin, delivery(status)) == shown


def test_the_arrived_button_resolves_an_unknown_delivery_once(admin: Client) -> None:
    one = delivery("unknown")
    assert "Ask ops-0 whether it arrived" in admin.get(page_of("runs_delivery", one)).content.decode()

    press(admin, "runs_delivery", one, "arrived")
    again = press(admin, "runs_delivery", one, "arrived")

    one.refresh_from_db()
    assert (one.status, one.reason) == ("sent", "admin:ada confirmed that it arrived")
    assert "arrived is for an unknown one" in again.content.decode()
    assert AuditEntry.objects.filter(action="resolve").count() == 1


def test_failed_ones_are_sent_again_together_and_unknown_ones_are_not(admin: Client) -> None:
    failed, unknown = delivery("failed"), delivery("unknown")

    messages = choose(admin, "runs_delivery", "send_chosen_again", failed, unknown)
    delivered()

    failed.refresh_from_db()
    unknown.refresh_from_db()
    assert messages == ["1 sent again.", "1 refused: only failed ones are sent again together"]
    assert (failed.status, unknown.status) == ("sent", "unknown")


def test_the_page_of_a_notification_shows_its_deliveries(admin: Client) -> None:
    one = delivery("failed")
    lost = notify("to no one")
    Delivery.objects.filter(notification=lost).delete()
    lost.planned_at = lost.created_at
    lost.save()

    assert "ops-0" in admin.get(page_of("runs_notification", one.notification)).content.decode()
    assert "no one got it" in admin.get(page_of("runs_notification", lost)).content.decode()


def test_a_merged_one_shows_when_the_message_that_carries_it_goes_out(admin: Client) -> None:
    make_recipient(spacing=timedelta(hours=1))
    for text in "abc":
        notify(text)
    plan()
    merged, carrier = Delivery.objects.get(status="merged"), Delivery.objects.get(status="held")

    def goes_out() -> str:
        page = admin.get(page_of("runs_delivery", merged)).content.decode()
        return re.sub(r"<[^>]+>", "", page.split("Goes out with")[1].split("</dd>")[0])

    assert carrier.due_at and f"another one, due {carrier.due_at:%Y-%m-%d %H:%M:%S} UTC" in goes_out()
    sent_at = timezone.now()
    Delivery.objects.filter(pk=carrier.pk).update(status="sent", sent_at=sent_at, due_at=None, ended_at=sent_at)
    assert f"another one, sent {sent_at:%Y-%m-%d %H:%M:%S} UTC" in goes_out()
