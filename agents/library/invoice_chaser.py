"""Reminds customers of overdue invoices: a model drafts the letter, a person approves it, and it is sent at most once."""

from datetime import date, timedelta
from typing import Any

from django.core.mail import EmailMessage
from django.db.models import F, Q

from agents import AgentRun, Permanent, agent, on

from .models import Invoice

GRACE = timedelta(days=7)  # between two reminders of one invoice
MOST = 3  # reminders of one invoice; after that a person takes over


@agent(
    "invoice-chaser",
    durable=True,
    triggers=[on.cron("0 9 * * mon-fri", tz="Europe/Vienna"), on.event("invoices.chase")],
)
def invoice_chaser(run: AgentRun) -> dict[str, Any]:
    """Starts a reminder for each overdue invoice, every working morning."""
    numbers = run.step("find overdue invoices", overdue, run.now().date().isoformat(), effect="read")
    for number in numbers:
        run.spawn(invoice_reminder, {"number": number}, key=number, at_once=5)
    return {"overdue": numbers}


@agent("invoice-reminder", durable=True)
def invoice_reminder(run: AgentRun) -> dict[str, Any]:
    """Has a letter drafted, asks a person to approve or edit it, and sends it at most once."""
    # Importing pydantic-ai takes most of a second, and only a worker that asks a model needs it.
    from .letter_writer import writer

    invoice = run.step("read the invoice", facts_of, run.input["number"], effect="read")
    number = invoice["number"]
    if invoice["paid_on"]:
        return {"invoice": number, "sent": False, "because": "paid"}
    letter = run.llm(writer, "Write a reminder of this invoice.", untrusted=invoice).output
    answer = run.ask_approval(
        f"Send this reminder of invoice {number} to {invoice['email']}?", arguments=letter.model_dump(), expires="3d"
    )
    if not answer:
        return {"invoice": number, "sent": False, "because": answer.decision}
    run.step("send", send, invoice["email"], answer.arguments, effect="at_most_once")
    run.step("count the reminder", count_reminder, number, run.now().date().isoformat())
    return {"invoice": number, "sent": True, "approved_by": answer.by}


def overdue(today: str) -> list[str]:
    day = date.fromisoformat(today)
    rested = Q(reminded_on=None) | Q(reminded_on__lt=day - GRACE)
    unpaid = Invoice.objects.filter(rested, paid_on=None, due_on__lt=day, reminders__lt=MOST)
    return list(unpaid.order_by("due_on", "number").values_list("number", flat=True))


def facts_of(number: str) -> dict[str, Any]:
    """Permanent: there is no such invoice."""
    invoice = Invoice.objects.filter(number=number).first()
    if invoice is None:
        raise Permanent(f"invoice {number!r} is not known")
    return {
        "number": invoice.number,
        "customer": invoice.customer,
        "email": invoice.email,
        "amount": str(invoice.amount),
        "due_on": invoice.due_on.isoformat(),
        "paid_on": invoice.paid_on and invoice.paid_on.isoformat(),
        "reminders": invoice.reminders,
    }


def send(email: str, letter: Any) -> None:
    """Permanent: an edited letter has no subject or no text."""
    try:
        message = EmailMessage(letter["subject"], letter["text"], to=[email])
    except (TypeError, KeyError):
        raise Permanent('the approved letter has no "subject" or no "text": fork the run from its approval') from None
    message.send()


def count_reminder(number: str, today: str) -> None:
    Invoice.objects.filter(number=number).update(reminders=F("reminders") + 1, reminded_on=date.fromisoformat(today))
