"""The inbox of a user: what was sent to `inbox:<user>`, the count of what is unread, and acknowledging it."""

import re
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from config.console.parts.inboxes import unread_badge
from runs.models import AuditEntry, Delivery, Recipient
from tests.config.console.conftest import LogIn
from tests.support.journals import make_approval
from tests.support.notifying import delivered, make_due, make_recipient, notify
from tests.support.runs import make_run

pytestmark = pytest.mark.django_db
INBOX = "/admin/inbox/"


def page_text(client: Client, **query: Any) -> str:
    return client.get(INBOX, query).content.decode()


def badge(client: Client) -> str:
    return unread_badge(client.get(INBOX).wsgi_request)


def test_a_message_is_read_and_acknowledged(admin: Client) -> None:
    make_recipient("ada", "inbox:ada")
    make_recipient("bob", "inbox:bob", gets_all=False)
    run = make_run()
    notify("Disk <full>", run_id=run.pk, link=f"run:{run.pk}")
    notify("For Bob", to=["bob"])
    delivered()

    page = page_text(admin)
    assert "Disk &lt;full&gt;" in page and str(run.pk) in page and "For Bob" not in page
    assert badge(admin) == "1"
    admin.post(INBOX, {"message": str(Delivery.objects.get(name="ada").pk)})

    assert "Disk" not in page_text(admin)
    assert "Acknowledged by admin:ada" in page_text(admin, show="all")
    assert badge(admin) == ""
    assert AuditEntry.objects.filter(action="acknowledge", by="admin:ada").count() == 1


def test_acknowledge_covers_all_shown_messages_and_no_later_one(admin: Client) -> None:
    make_recipient("ada", "inbox:ada")
    notify("a")
    notify("b")
    delivered()
    until = re.search(r'name="until" value="([^"]+)"', page_text(admin))
    assert until
    notify("later")
    delivered()

    admin.post(INBOX, {"until": until[1]})

    left = Delivery.objects.filter(acknowledged_at=None)
    assert [one.notification.text for one in left] == ["later"]
    assert AuditEntry.objects.get(action="acknowledge all").detail["deliveries"] == 2


def test_messages_of_others_are_not_acknowledged(log_in: LogIn) -> None:
    make_recipient("bob", "inbox:bob")
    notify()
    delivered()

    answer = log_in("runs.view_run").post(INBOX, {"message": str(Delivery.objects.get().pk)})

    assert answer.status_code == 403
    assert Delivery.objects.get().acknowledged_at is None


def test_notifications_that_are_sent_together_are_one_message(admin: Client) -> None:
    make_recipient("ada", "inbox:ada", spacing=timedelta(hours=1))
    for text in ("first", "second", "third"):
        notify(text)
        delivered()
    make_due()
    delivered()

    page = page_text(admin)

    assert page.count("inbox-message") == 2
    assert page.index("second") < page.index("third") < page.index("first")


def test_the_link_of_an_approval_leads_to_its_page_and_not_past_the_login(admin: Client) -> None:
    make_recipient("ada", "inbox:ada")
    approval = make_approval(make_run(status="waiting"), status="open")
    notify("May I?", link=f"approval:{approval.pk}")
    delivered()

    page = page_text(admin)

    assert f"/admin/runs/approval/{approval.pk}/change/" in page
    assert "/approvals/" not in page


def test_without_an_inbox_the_page_shows_how_to_begin_and_one_click_does(admin: Client) -> None:
    page = page_text(admin)
    assert "No recipient is your inbox yet." in page
    assert "WAKEFUL_NOTIFY_TO=mailto:ops@example.com" in page

    admin.post(INBOX, {"begin": "1"})
    notify("news")
    delivered()

    assert Recipient.objects.get().address == "inbox:ada"
    assert "news" in page_text(admin)
    assert "WAKEFUL_NOTIFY_TO=" not in page_text(admin)


def test_who_may_not_see_notifications_opens_no_inbox(log_in: LogIn) -> None:
    client = log_in("runs.view_run")

    assert "Open my inbox" not in page_text(client)
    assert client.post(INBOX, {"begin": "1"}).status_code == 403
    assert not Recipient.objects.exists()


def test_the_inbox_is_read_page_by_page(admin: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("config.console.notifications.inbox.PER_PAGE", 2)
    recipient = make_recipient("ada", "inbox:ada")
    now = timezone.now()
    for number in range(3):
        Delivery.objects.create(
            notification=notify(f"number {number}"),
            recipient=recipient,
            name="ada",
            channel="inbox",
            status="sent",
            sent_at=now - timedelta(minutes=number),
        )

    first = page_text(admin)
    older = re.search(r"before=([^\"]+)\">Older", first)
    assert older
    second = admin.get(f"{INBOX}?show=unread&before={older[1]}").content.decode()

    assert re.findall(r"number (\d)", first) == ["0", "1"]
    assert re.findall(r"number (\d)", second) == ["2"]


def test_messages_of_incidents_and_digests_lead_to_their_pages(admin: Client) -> None:
    make_recipient("ada", "inbox:ada")
    notify("It fails", link="incident:7")
    notify("The night", link="overnight:2026-11-23T06:00:00+00:00")
    delivered()

    page = page_text(admin)

    assert "/admin/runs/incident/7/change/" in page
    assert "/admin/overnight/?to=2026-11-23T06%3A00%3A00%2B00%3A00" in page
