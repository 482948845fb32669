"""Durable agents that need a person: one asks, one cannot know what happened, one fails at what it was given."""

from typing import Any

from agents import AgentRun, Permanent, agent, on


@agent("refund", durable=True, triggers=[on.event("desk.refund")], retries=0)
def refund(run: AgentRun) -> dict[str, Any]:
    """Refunds what a person approves, perhaps another amount."""
    wish = run.step("look up", lambda: {"invoice": run.event.data["invoice"], "cents": 12900})
    answer = run.ask_approval(f"Refund invoice {wish['invoice']}?", arguments=wish, expires="2d")
    if not answer:
        return {"refunded": 0}
    run.emit("refunded", answer.arguments)
    return {"refunded": answer.arguments["cents"]}


@agent("charge", durable=True, triggers=[on.event("desk.charge")], retries=0)
def charge(run: AgentRun) -> dict[str, Any]:
    """Charges a card by a service that hangs up in the middle."""
    charged = run.step("charge card", call_service, {"cents": 4200}, effect="at_most_once")
    return {"charge": charged["id"]}


def call_service(order: dict[str, int]) -> dict[str, str]:
    raise ConnectionError("the service hung up before it answered")


@agent("import", durable=True, triggers=[on.event("desk.import")], retries=0)
def import_rows(run: AgentRun) -> dict[str, Any]:
    """Reads once, then writes as many rows as its input names; a negative number fails."""
    source = run.step("read", lambda: str(run.id), effect="read")
    written = run.step("write", write_rows, run.input["rows"])
    return {"read_by": source, "written": written}


def write_rows(rows: int) -> int:
    if rows < 0:
        raise Permanent(f"{rows} rows cannot be written")
    return rows
