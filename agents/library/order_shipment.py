from typing import Any

from agents import AgentRun, Permanent, agent, on

from .models import Order


@agent("order-shipment", triggers=[on.event("order.shipped")])
def order_shipment(run: AgentRun) -> dict[str, Any]:
    """Marks an order as shipped. For an unknown order the run fails: send the order, then requeue the run."""
    data = run.event.data
    number = data.get("order") if isinstance(data, dict) else None
    # Locked, so that two announcements of one shipment agree on its time.
    order = Order.objects.select_for_update().filter(number=number).first()
    if order is None:
        raise Permanent(f"order {number!r} is not known: send it as order.placed, then requeue this run")
    order.shipped_at = order.shipped_at or run.event.time
    order.save(update_fields=["shipped_at"])
    return {"order": order.number, "shipped_at": order.shipped_at.isoformat()}
