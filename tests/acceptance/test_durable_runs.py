"""A run that takes its time outlives every process, and a deploy."""

import hmac
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.integration.protocol import emit, in_status, run_of, runs
from tests.support.stack import ROOT, Stack, StackMaker, eventually

AGENTS = """
from agents import AgentRun, agent, on
from courier.agents import write


@agent("journey", durable=True, triggers=[on.event("journey.begun")])
def journey(run: AgentRun):
    run.step("pack", write, run.id, "pack")
    run.sleep("3s")
    run.step("leave", write, run.id, "leave")
    paid = run.wait_for_event("ticket.paid", match={"ticket": run.event.data["ticket"]}, timeout="10m")
    run.step("show", write, run.id, f"show {paid.data['number']}")
    answer = run.ask_approval("Which class?", arguments={"class": 2}, expires="10m")
    run.step("board", write, run.id, f"board {answer.arguments['class']}")
    legs = run.gather(*[run.spawn("leg", {"number": number}, key=str(number)) for number in range(3)])
    run.step("arrive", write, run.id, "arrive")
    # The next version goes on here.
    return legs


@agent("leg", durable=True)
def leg(run: AgentRun):
    run.step("ride", write, run.id, "ride")
    run.sleep("3s")
    return run.input["number"] * 10
"""
NEXT = AGENTS.replace("# The next version goes on here.", 'run.step("unpack", write, run.id, "unpack")')
SIGNED = {"header": "X-Signature", "template": "{body}", "id_path": "id", "type_path": "type"}


@pytest.fixture
def stack(make_stack: StackMaker, tmp_path: Path) -> Stack:
    deploy(tmp_path, AGENTS)
    env = {"WAKEFUL_APPS": "courier,journey", "PYTHONPATH": f"{tmp_path}:{ROOT / 'tests' / 'userapps'}"}
    return make_stack(env=env, agents=True).up()


def deploy(folder: Path, code: str) -> None:
    (folder / "journey").mkdir(exist_ok=True)
    (folder / "journey" / "__init__.py").touch()
    (folder / "journey" / "agents.py").write_text(code)


def make_doors(stack: Stack) -> bytes:
    """A source for webhooks, and a token; the source's secret."""
    with stack.orm():
        from triggers.api.tokens import ensure_token
        from triggers.models import Source
        from triggers.sources.secrets import rotate

        ensure_token("test", stack.env["WAKEFUL_API_TOKEN"], ["*"])
        return rotate(Source.objects.create(slug="desk", kind="hmac", settings=SIGNED), by="test").encode()


def deliver(stack: Stack, secret: bytes, **data: Any) -> int:
    body = json.dumps(data).encode()
    headers = {"Content-Type": "application/json", "X-Signature": hmac.digest(secret, body, "sha256").hex()}
    return stack.request("POST", "/hooks/desk/", body=body, headers=headers).status


def kill_everything(stack: Stack) -> None:
    for process in stack.processes:
        process.kill()


def stop_everything(stack: Stack) -> None:
    stoppers = [threading.Thread(target=process.stop) for process in stack.processes]
    for thread in stoppers:
        thread.start()
    for thread in stoppers:
        thread.join()


def start_everything(stack: Stack) -> None:
    for process in stack.processes:
        process.restart(wait=False)
    for process in stack.processes:
        process.wait_ready(60)


def until_waiting(stack: Stack, event: str, what: str) -> dict[str, Any]:
    query = "%s::uuid = ANY(event_ids) AND status = 'waiting' AND status_reason = %s"
    return eventually(lambda: runs(stack, query, event, what), 60)[0]


def written(stack: Stack, run: Any) -> list[str]:
    rows = stack.query("SELECT step FROM courier_entry WHERE run = %s ORDER BY id", run)
    return [row["step"] for row in rows]


@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_a_run_goes_on_where_it_was_whatever_is_restarted_or_deployed_meanwhile(stack: Stack, tmp_path: Path) -> None:
    secret = make_doors(stack)
    event = emit(stack, "journey.begun", "1", ticket="T-1")
    began = until_waiting(stack, event, "sleep#1")

    # It sleeps; the instant it waits for passes while no process runs.
    kill_everything(stack)
    eventually(lambda: stack.query("SELECT 1 FROM runs_wait WHERE due_at < clock_timestamp()"))
    start_everything(stack)

    # It waits for an event. A deploy: all are stopped, and those that are started have other code.
    until_waiting(stack, event, "event ticket.paid#1")
    stop_everything(stack)
    deploy(tmp_path, NEXT)
    start_everything(stack)
    assert deliver(stack, secret, id="d-1", type="ticket.paid", ticket="T-2", number=1) == 202
    assert deliver(stack, secret, id="d-2", type="ticket.paid", ticket="T-1", number=2) == 202

    # It asks.
    until_waiting(stack, event, "approval#1")
    kill_everything(stack)
    start_everything(stack)
    [approval] = stack.api("GET", "/api/v1/approvals/?status=pending").json()["results"]
    decision = {"decision": "edit", "arguments": {"class": 1}, "digest": approval["digest"]}
    assert stack.api("POST", f"/api/v1/approvals/{approval['id']}/decide/", decision).status == 200
    assert stack.api("POST", f"/api/v1/approvals/{approval['id']}/decide/", decision).status == 409

    # It has children, and waits for them.
    until_waiting(stack, event, "join#1")
    kill_everything(stack)
    start_everything(stack)

    run = in_status(stack, event, "succeeded")
    assert run["result"] == [0, 10, 20]
    assert written(stack, run["id"]) == ["pack", "leave", "show 2", "board 1", "arrive", "unpack"]
    assert run["begun_version"] == began["version"] != run["version"]
    children = runs(stack, "parent_id = %s", run["id"])
    assert [child["status"] for child in children] == ["succeeded"] * 3
    assert [written(stack, child["id"]) for child in children] == [["ride"]] * 3
    assert run_of(stack, event)["id"] == run["id"]
    eventually(
        lambda: not stack.query("SELECT 1 FROM runs_outboxmessage")
    )  # reports of ended runs go out every half second
    stack.manage("verify", "--drained")
