"""Agents that write, ask and send, and agents that wait."""

import http.client
import json
import os
from typing import Any
from uuid import UUID

from agents import AgentRun, agent, on

from .models import Entry

ROUNDS = 5  # of four steps each


def write(run_id: UUID, step: str) -> str:
    Entry.objects.create(run=run_id, step=step)
    return step


def call(path: str, key: str, **body: Any) -> Any:
    """What the receiver answers; it gets the idempotency key."""
    connection = http.client.HTTPConnection(os.environ["COURIER_BASE_URL"], timeout=60)
    try:
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        connection.request("POST", path, body=json.dumps(body), headers=headers)
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


@agent("twenty", durable=True, triggers=[on.event("courier.twenty")], pause_after=0)
def twenty(run: AgentRun) -> list[Any]:
    """Twenty steps of all four effects; what is paid depends on what was drawn and answered before."""
    outputs: list[Any] = []
    for number in range(ROUNDS):
        outputs.append(run.step(f"write-{number}", write, run.id, f"write-{number}"))
        outputs.append(run.step(f"look-{number}", look, run, effect="read"))
        token = str(run.uuid())
        outputs.append(run.step("pay", pay, run, token, list(outputs), key=number, effect="idempotent"))
        outputs.append(run.step("ring", ring, run, key=number, effect="at_most_once"))
    return outputs


def look(run: AgentRun) -> Any:
    return call("/look", run.idempotency_key)


def pay(run: AgentRun, token: str, outputs: list[Any]) -> Any:
    return call("/pay", run.idempotency_key, token=token, outputs=outputs)


def ring(run: AgentRun) -> Any:
    return call("/ring", run.idempotency_key)


@agent("listener", durable=True, triggers=[on.event("courier.listen")], pause_after=0)
def listener(run: AgentRun) -> list[Any]:
    """Waits for payments of its order, one after the other, each for so long."""
    seen = []
    for number, timeout in enumerate(run.event.data["timeouts"]):
        came = run.wait_for_event("courier.paid", match={"order": run.event.data["order"]}, timeout=timeout)
        run.step("woke", write, run.id, f"woke-{number}", key=number)
        seen.append(came and came.data["number"])
    return seen


@agent("asker", durable=True, triggers=[on.event("courier.ask")], pause_after=0)
def asker(run: AgentRun) -> str:
    """Asks once, and returns the answer."""
    answer = run.ask_approval("Pay?", arguments={"cents": 5}, expires=run.event.data["expires"])
    run.step("woke", write, run.id, "woke-0")
    return answer.decision


@agent("parent", durable=True, triggers=[on.event("courier.spawn")], pause_after=0)
def parent(run: AgentRun) -> list[Any]:
    """Spawns three, and waits for them."""
    results = run.gather(*[run.spawn("child", {"number": number}, key=str(number)) for number in range(3)])
    run.step("woke", write, run.id, "woke-0")
    return results


@agent("child", durable=True)
def child(run: AgentRun) -> int:
    """Ends when the receiver lets it: with its brothers at once."""
    run.step("gate", lambda: call("/gate", run.idempotency_key), effect="read")
    number: int = run.input["number"]
    return number


@agent("payer", durable=True, triggers=[on.event("courier.approve")], pause_after=0, retries=100)
def payer(run: AgentRun) -> list[Any]:
    """Asks, and pays what was decided, if anything."""
    answer = run.ask_approval("Pay?", arguments={"cents": 5}, expires="1h")
    if answer.decision != "denied":
        run.step("pay", lambda: call("/pay", run.idempotency_key, cents=answer.arguments["cents"]), effect="idempotent")
        run.step("ring", ring, run, effect="at_most_once")
    run.step("woke", write, run.id, answer.decision)
    return [answer.decision, answer.arguments]
