"""Durable agents: they take steps of every effect, wait, ask and spawn. `agents.py` imports them."""

import http.client
import json
import os
from typing import Any
from uuid import UUID

from agents import AgentRun, Retry, agent, on

from .models import Deed


def do(run_id: UUID, step: str, approval: str | None = None, arguments: Any = None) -> str:
    Deed.objects.create(run=run_id, step=step, approval=approval, arguments=arguments)
    return step


def call(path: str, key: str, **body: Any) -> Any:
    """What the receiver outside answers; it gets the idempotency key."""
    connection = http.client.HTTPConnection(os.environ["LAB_RECEIVER"], timeout=20)
    try:
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        connection.request("POST", path, body=json.dumps(body), headers=headers)
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


def look(run: AgentRun) -> Any:
    return call("/look", run.idempotency_key)


def pay(run: AgentRun, token: str, so_far: Any) -> Any:
    return call("/pay", run.idempotency_key, token=token, so_far=so_far)


def ring(run: AgentRun) -> Any:
    return call("/ring", run.idempotency_key)


@agent("stepping", durable=True, triggers=[on.event("lab.stepping")], pause_after=0)
def stepping(run: AgentRun) -> list[Any]:
    """Every effect, twice, and a short sleep between; emits in a step of its own."""
    so_far: list[Any] = []
    for number in range(2):
        so_far.append(run.step(f"do-{number}", do, run.id, f"do-{number}"))
        so_far.append(run.step("look", look, run, key=number, effect="read"))
        so_far.append(run.step(f"pay-{number}", pay, run, str(run.uuid()), list(so_far), effect="idempotent"))
        so_far.append(run.step("ring", ring, run, key=number, effect="at_most_once"))
        if number == 0:
            run.sleep(0.2)
    run.emit("lab.stepped", {"of": str(run.event.id)})
    return so_far


@agent(
    "wavering", durable=True, triggers=[on.event("lab.wavering")], key="event.data.key", overlap="queue", pause_after=0
)
def wavering(run: AgentRun) -> Any:
    """Steps that fail at first, one after the other of their key."""

    def waver() -> str:
        if run.attempt == 1:
            raise Retry("not yet", after=0.2)
        return do(run.id, "waver")

    run.step("do-0", do, run.id, "do-0")
    return run.step("waver", waver)


@agent("patient", durable=True, triggers=[on.event("lab.patient")], pause_after=0)
def patient(run: AgentRun) -> list[Any]:
    """Waits for two replies, each for some seconds; they come before, meanwhile, or one never does."""
    replies: list[Any] = []
    for number in range(2):
        run.step("do", do, run.id, f"do:{number}", key=number)
        came = run.wait_for_event("lab.reply", match={"to.of": run.event.data["of"]}, timeout=4)
        replies.append(came and came.data["to"]["reply"])
    run.step("done", do, run.id, "done")
    return replies


@agent("asking", durable=True, triggers=[on.event("lab.asking")], pause_after=0)
def asking(run: AgentRun) -> str:
    """Spends what it is allowed to."""
    cents = 100 + run.event.data["number"]
    answer = run.ask_approval(f"Spend {cents}?", arguments={"cents": cents}, expires=run.event.data.get("expires", 3))
    if answer:
        run.step("spend", spend, run, answer.arguments)
    run.step("done", do, run.id, "done")
    return answer.decision


def spend(run: AgentRun, arguments: Any) -> str:
    from runs.models import Approval

    approval = Approval.objects.get(wait__run_id=run.id)
    return do(run.id, "spend", str(approval.pk), arguments)


@agent("family", durable=True, triggers=[on.event("lab.family")], pause_after=0)
def family(run: AgentRun) -> list[Any]:
    """Spawns three, of which two run at once, and one whose end it does not wait for."""
    children = [run.spawn("sprout", {"number": number}, key=str(number), at_once=2) for number in range(3)]
    run.spawn("sprout", {"number": 9}, key="astray")
    ended = run.join(*children)
    run.step("done", do, run.id, "done")
    return [end.status for end in ended]


@agent("sprout", durable=True)
def sprout(run: AgentRun) -> int:
    """A child that sleeps in between."""
    number: int = run.input["number"]
    run.step("do-0", do, run.id, "do-0")
    run.sleep((0.01, 0.1, 0.2)[number % 3])  # the first keeps its process
    run.step("pay-0", pay, run, str(run.uuid()), number, effect="idempotent")
    return number
