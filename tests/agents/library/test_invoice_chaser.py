from datetime import date
from typing import Any

import pytest
from pydantic_ai.models.test import TestModel

from agents.library.invoice_chaser import invoice_chaser, invoice_reminder
from agents.library.models import Invoice
from agents.testing import Journal, Parked, assert_replays, run_agent

pytestmark = pytest.mark.django_db

LETTER = TestModel(custom_output_args={"subject": "Invoice I-1", "text": "Please pay."})
ASKED = "approval#1"


def make_invoice(number: str = "I-1", **values: Any) -> Invoice:
    given = {"customer": "Ada", "email": "ada@example.com", "amount": 10, "due_on": date(2020, 1, 1), **values}
    return Invoice.objects.create(number=number, **given)


def test_each_overdue_invoice_gets_a_run_of_its_own() -> None:
    make_invoice("I-1")
    make_invoice("I-2", paid_on=date(2020, 1, 2))
    make_invoice("I-3", due_on=date(2999, 1, 1))
    make_invoice("I-4", reminders=3)
    make_invoice("I-5", reminded_on=date.today())

    done = run_agent(invoice_chaser)

    assert [child.input for child in done.children] == [{"number": "I-1"}]


def test_an_approved_letter_is_sent_and_counted_once(mailoutbox: list[Any]) -> None:
    make_invoice()

    done = run_agent(invoice_reminder, input={"number": "I-1"}, model=LETTER, waits={ASKED: "approved"})

    assert done.result["sent"]
    [mail] = mailoutbox
    assert (mail.subject, mail.body, mail.to) == ("Invoice I-1", "Please pay.", ["ada@example.com"])
    assert Invoice.objects.get().reminders == 1
    assert_replays(done)
    assert len(mailoutbox) == 1


@pytest.mark.parametrize("decision", ["denied", "expired"])
def test_a_letter_that_is_not_approved_is_not_sent(mailoutbox: list[Any], decision: str) -> None:
    make_invoice()

    done = run_agent(invoice_reminder, input={"number": "I-1"}, model=LETTER, waits={ASKED: decision})

    assert done.result == {"invoice": "I-1", "sent": False, "because": decision}
    assert not mailoutbox


def test_a_letter_that_may_have_been_sent_is_left_to_a_person(monkeypatch: pytest.MonkeyPatch) -> None:
    make_invoice()
    monkeypatch.setattr("django.core.mail.EmailMessage.send", lambda self: 1 / 0)

    with pytest.raises(Parked, match="unknown whether it happened"):
        run_agent(invoice_reminder, input={"number": "I-1"}, model=LETTER, waits={ASKED: "approved"}, journal=Journal())


def test_a_paid_invoice_calls_no_model() -> None:
    make_invoice(paid_on=date(2020, 2, 1))

    assert run_agent(invoice_reminder, input={"number": "I-1"}).result["because"] == "paid"


def test_the_built_in_model_drafts_a_letter_without_a_key(settings: Any, mailoutbox: list[Any]) -> None:
    settings.WAKEFUL_MODEL = "builtin"
    make_invoice()

    done = run_agent(invoice_reminder, input={"number": "I-1"}, waits={ASKED: "approved"})

    assert "llm letter-writer#1:earlier_invoices" in " ".join(done.steps)
    [mail] = mailoutbox
    assert mail.subject == "Reminder of invoice I-1"
    assert mail.body == (
        "Dear Ada,\n\nThis is a reminder of invoice I-1.\n\nAmount: 10.00\nDue on: 2020-01-01\n\nKind regards"
    )
