"""The agent behind the demo's webhook: the source `demo` is a shop that sends orders, like `manage.py emit order.placed`."""

from decimal import Decimal, InvalidOperation
from typing import Any

from agents import AgentRun, Permanent, agent, on

from .models import Order

CENT = Decimal("0.01")
LIMIT = 10_000_000_000


@agent("order-intake", triggers=[on.event("order.placed")])
def order_intake(run: AgentRun) -> dict[str, Any]:
    """Books an order once, even if the shop announces it again, and emits `order.received`."""
    number, total = read_order(run.event.data)
    order, is_new = Order.objects.get_or_create(number=number, defaults={"total": total, "placed_at": run.event.time})
    if is_new:
        run.emit("order.received", {"order": order.number, "total": str(order.total)}, subject=order.number)
    return {"order": order.number, "total": str(order.total), "new": is_new}


def read_order(data: Any) -> tuple[str, Decimal]:
    """Number and total of an order; Permanent if one is missing or invalid."""
    try:
        number, total = str(data["order"]), Decimal(str(data["total"]))
        if 0 <= total < LIMIT:
            return number, total.quantize(CENT)
    except (TypeError, KeyError, InvalidOperation):
        pass
    raise Permanent(f'not an order: send "order", its number, and "total", an amount below {LIMIT}')
