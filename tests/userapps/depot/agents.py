"""Agents of a depot, for the walk through its console: one works, one fails now and then, one looks at changed rows, one reports."""

from typing import Any

from agents import AgentRun, agent, on


@agent("order-pick", triggers=[on.event("order.picked")], key="event.data.order")
def order_pick(run: AgentRun) -> dict[str, Any]:
    """Picks what an order needs."""
    run.log.info("picked", order=run.event.data["order"])
    run.emit("order.packed", {"order": run.event.data["order"]}, subject=run.event.subject)
    return {"picked": run.event.data["order"]}


@agent("order-label", triggers=[on.event("order.packed", source="run")], retries=0, pause_after=0)
def order_label(run: AgentRun) -> None:
    """Prints a label; the printer is out of paper for every third order."""
    if int(run.event.data["order"].removeprefix("A-")) % 3 == 0:
        raise ConnectionError("the printer is out of paper")


@agent("stock-watch", triggers=[on.model_change("auth.Group", operations=["update"])])
def stock_watch(run: AgentRun) -> dict[str, Any]:
    """Reports a renamed shelf."""
    names = {"was": run.event.data["old"]["name"], "is": run.event.data["new"]["name"]}
    run.notify(f"Shelf {names['was']} is called {names['is']} now", urgency="low")
    return names


@agent("carrier-sync", triggers=[on.event("carrier.sync")], retries=0, pause_after=2)
def carrier_sync(run: AgentRun) -> None:
    """Fails: the carrier has changed its address."""
    raise TimeoutError("the carrier does not answer")
