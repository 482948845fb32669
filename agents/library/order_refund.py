"""The demo's durable agent: `refund.requested` starts it, a person approves, `parcel.returned` lets it pay."""

from decimal import Decimal, InvalidOperation
from typing import Any

from agents import AgentRun, Permanent, agent, on

from .models import Order
from .order_intake import CENT


@agent("order-refund", durable=True, triggers=[on.event("refund.requested")], key="event.data.order")
def order_refund(run: AgentRun) -> dict[str, Any]:
    """Refunds an order after a person has approved it and the goods have returned, even if both take days."""
    order = run.step("find the order", find_order, run.event.data.get("order"), effect="read")
    number = order["number"]
    if order["refunded"]:
        return {"order": number, "refunded": order["refunded"], "new": False}
    answer = run.ask_approval(f"Refund order {number}?", arguments={"amount": order["total"]}, expires="7d")
    if not answer:
        return {"order": number, "refunded": None, "because": answer.decision}
    if run.wait_for_event("parcel.returned", match={"order": number}, timeout="14d") is None:
        run.notify(f"The refund of order {number} was approved, but its goods have not returned within 14 days")
        return {"order": number, "refunded": None, "because": "not returned"}
    refunded = run.step("refund", refund, number, answer.arguments)
    run.notify(f"Refunded {refunded} of order {number}, approved by {answer.by}")
    return {"order": number, "refunded": refunded, "new": True}


def find_order(number: Any) -> dict[str, Any]:
    order = Order.objects.filter(number=number).first()
    if order is None:
        raise Permanent(f"order {number!r} is not known: send it as order.placed, then requeue this run")
    return {
        "number": order.number,
        "total": str(order.total),
        "refunded": None if order.refunded is None else str(order.refunded),
    }


def refund(number: str, granted: Any) -> str:
    """The refunded amount, which a person may have edited; Permanent if it is missing, or more than was paid."""
    order = Order.objects.select_for_update().get(number=number)
    try:
        amount = Decimal(str(granted["amount"])).quantize(CENT)
    except (TypeError, KeyError, InvalidOperation):
        raise Permanent(
            'the approved arguments have no "amount": fork the run from its approval to ask again'
        ) from None
    if not 0 < amount <= order.total:
        raise Permanent(f"cannot refund {amount} of {order.total}: fork the run from its approval to ask again")
    order.refunded = amount
    order.save(update_fields=["refunded"])
    return str(amount)
