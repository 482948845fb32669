"""The demo's webhook ends here: the source `demo` is a shop that sends orders. `manage.py emit order.placed` does too."""

from decimal import Decimal, InvalidOperation
from typing import Any

from agents import AgentRun, Permanent, agent, on

from .models import Order

CENT = Decimal("0.01")
LIMIT = 10_000_000_000


@agent("order-intake", triggers=[on.event("order.placed")])
def order_intake(run: AgentRun) -> dict[str, Any]:
    """Books an order once, however often the shop announces it, and passes it on as `order.received`."""
    number, total = read_order(run.event.data)
    order, is_new = Order.objects.get_or_create(number=number, defaults={"total": total, "placed_at": run.event.time})
    if is_new:
        run.emit("order.received", {"order": order.number, "total": str(order.total)}, subject=order.number)
    return {"order": order.number, "total": str(order.total), "new": is_new}


def read_order(data: Any) -> tuple[str, Decimal]:
    """Number and total of an order; Permanent says what is wrong with it."""
    try:
        number, total = str(data["order"]), Decimal(str(data["total"]))
        if 0 <= total < LIMIT:
            return number, total.quantize(CENT)
    except (TypeError, KeyError, InvalidOperation):
        pass
    raise Permanent(f'this is no order: it needs "order", its number, and "total", an amount below {LIMIT}')
