"""A run that a mail has woken asks for a decision in its thread: by the page of the console, which needs a login."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.test import Client

from agents import AgentRun
from runs.models import Approval, Delivery, Notification
from tests.support.durable import Lab, lab
from tests.support.notifying import delivered
from tests.support.post_office import MailServer, taking_mail, text_of
from tests.support.runs import make_run
from tests.support.triggers import make_event
from triggers.models import Source
from triggers.sources.kind import kinds
from triggers.sources.mail import read_mail
from triggers.sources.settings import InvalidSettings

__all__ = ["lab"]

pytestmark = pytest.mark.django_db(transaction=True)

CHOSEN = {
    "host": "imap.example.org",
    "user": "help@example.org",
    "approvals": "yes",
    "answers_to": "ada@example.org",
    "mailbox_address": "help@example.org",
}


@pytest.fixture
def mail(monkeypatch: pytest.MonkeyPatch) -> Iterator[MailServer]:
    with taking_mail() as server:
        monkeypatch.setattr(settings, "EMAIL_URL", server.url)
        yield server


def message(sender: str) -> dict[str, Any]:
    text = f"From: Ada <{sender}>\r\nSubject: A refund\r\nMessage-ID: <1@example.org>\r\n\r\nRefund me\r\n"
    data: dict[str, Any] = read_mail(text.encode()).data
    return data


def refund(run: AgentRun) -> str:
    return run.ask_approval("Refund it?", arguments={"amount": 30}).decision


def asked(lab: Lab, sender: str = "ada@example.org") -> None:
    source = Source.objects.create(slug="mailbox", kind="imap", settings=CHOSEN)
    lab.declare(refund, "durable")
    event = make_event(source_id=source.pk, data=message(sender))
    lab.go_on(make_run(event_ids=[event.id], trigger="durable", policy={"retries": 0, "durable": True}))
    delivered()


def test_the_mail_has_no_key_and_its_page_needs_a_login(lab: Lab, mail: MailServer) -> None:
    asked(lab)

    [delivery] = Delivery.objects.exclude(place=None)
    assert (delivery.status, delivery.error, delivery.channel) == ("sent", "", "mail-thread")
    [letter] = mail.letters
    text = text_of(letter)
    approval = Approval.objects.get()
    assert "Refund it?" in text and '"amount": 30' in text
    assert f"/admin/runs/approval/{approval.pk}/change/" in text
    assert "/approvals/" not in text
    page = Client().post(f"/admin/runs/approval/{approval.pk}/change/")
    assert page.status_code == 302 and "/login/" in page["Location"]
    assert Approval.objects.get().decision == ""


def test_no_request_goes_to_a_sender_who_may_not_be_answered(lab: Lab, mail: MailServer) -> None:
    asked(lab, "mallory@example.net")

    assert not Delivery.objects.exclude(place=None).exists()


def test_a_request_that_is_refused_is_not_made_again_by_the_notification_of_its_failure(
    lab: Lab, mail: MailServer
) -> None:
    mail.manner = "refuse"

    asked(lab)

    assert [one.status for one in Delivery.objects.exclude(place=None)] == ["failed"]
    assert Notification.objects.filter(text__contains="could not be sent").count() == 1


def test_a_mailbox_that_answers_everyone_sends_no_requests() -> None:
    with pytest.raises(InvalidSettings, match="not to"):
        kinds()["imap"].clean_settings({**CHOSEN, "answers_to": "*", "reply": "ask"})
