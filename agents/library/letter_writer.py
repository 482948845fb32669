"""The LLM agent behind `invoice_chaser`: it drafts letters, and cannot send any."""

from typing import Any

from pydantic import BaseModel, Field
from pydantic_ai import Agent

from .models import Invoice


class Letter(BaseModel):
    subject: str = Field(max_length=120)
    text: str = Field(max_length=4000)


writer = Agent(
    name="letter-writer",
    output_type=Letter,
    instructions=(
        "You write reminders of unpaid invoices: short, friendly, in plain words, with the number, the amount and the due date "
        "of the invoice in the data block. Look at the customer's earlier invoices first: who has always paid gets a softer "
        "letter."
    ),
)


@writer.tool_plain(metadata={"effect": "read", "trusted": True})
def earlier_invoices(customer: str) -> list[dict[str, Any]]:
    """The customer's invoices, the newest first."""
    found = Invoice.objects.filter(customer=customer).order_by("-due_on")[:10]
    return [{"number": one.number, "due_on": str(one.due_on), "is_paid": one.paid_on is not None} for one in found]
