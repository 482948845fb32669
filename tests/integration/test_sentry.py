"""Sentry's own SDK, in real processes: as many events as final failures, whichever process ends the run."""

import importlib.util
import time
from contextlib import suppress
from typing import Any

import pytest

from tests.integration.protocol import emit, in_status
from tests.support.sentry_server import SentryServer, sentry_server
from tests.support.stack import ROOT, Stack, StackMaker, eventually
from tests.support.wire import Status, Turn, Wire, providing
from triggers.api.tokens import ensure_token

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.skipif(importlib.util.find_spec("sentry_sdk") is None, reason="pip install sentry-sdk"),
]

PASSWORD = "correct-horse-battery-7"
RAISED = {
    "plain": "LookupError",
    "durable": "Permanent",
    "retried": "RuntimeError",
    "slow": "DeadlineExceeded",
    "refused": "StepFailed",
    "broke": "Permanent",
}
KILLED = ["killed", "stubborn"]  # ended by the parent of its process


def test_each_final_failure_is_one_event_that_names_its_run(make_stack: StackMaker) -> None:
    with sentry_server() as sentry, providing() as wire:
        stack = buggy_stack(make_stack, sentry, wire)
        worker = stack.start("worker", concurrency=2)

        failed = failures(stack, list(RAISED))
        require_one_event_each(sentry, failed)  # what the SDK has not sent when its process is killed would be lost
        failed |= failures(stack, KILLED)
        failed["parked"] = in_status(stack, emit(stack, "bug.parked", "parked"), "uncertain")
        require_one_event_each(sentry, {name: run for name, run in failed.items() if name != "parked"})
        stack.api("POST", f"/api/v1/runs/{failed['parked']['id']}/resolve/", {"outcome": "fail"})
        held = emit(stack, "bug.held", "held")
        in_status(stack, held, "running")
        worker.kill()
        failed["held"] = in_status(stack, held, "failed")
        worker = stack.start("worker", concurrency=1)
        last = in_status(stack, emit(stack, "bug.plain", "plain-again"), "failed")
        worker.stop()  # at once: what waits is sent before its processes end
        failed["plain again"] = last

        require_one_event_each(sentry, failed)
        assert b"a-variable-of-the-body" not in sentry.everything
        assert PASSWORD.encode() not in sentry.everything
        assert stack.env["WAKEFUL_API_TOKEN"].encode() not in sentry.everything


def buggy_stack(make_stack: StackMaker, sentry: SentryServer, wire: Wire) -> Stack:
    wire.script("refused", Turn("done", faults=[Status(400)] * 9))
    env = {"WAKEFUL_APPS": "bugs", "PYTHONPATH": str(ROOT / "tests" / "userapps"), "BUGS_PASSWORD": PASSWORD}
    stack = make_stack(
        env={**wire.env, **env, "WAKEFUL_MODEL": "openai-chat:gpt-4o", "BUGS_DSN": sentry.dsn}, agents=True
    )
    stack.query("UPDATE triggers_trigger SET policy = policy || '{\"backoff\": 0.2}'")
    for kind in ("web", "dispatcher", "caller"):
        stack.start(kind)
    with stack.orm():
        ensure_token("test", stack.env["WAKEFUL_API_TOKEN"], ["*"])
    return stack


def failures(stack: Stack, names: list[str]) -> dict[str, dict[str, Any]]:
    """The runs of agents with these names, once they have failed."""
    events = {name: emit(stack, f"bug.{name}", name) for name in names}
    return {name: in_status(stack, event, "failed") for name, event in events.items()}


def require_one_event_each(sentry: SentryServer, failed: dict[str, dict[str, Any]]) -> None:
    with suppress(AssertionError):
        eventually(lambda: len(sentry.events) >= len(failed))
    time.sleep(1)  # for one too many
    expected = [(str(run["id"]), run["agent"], run["trigger"], RAISED.get(run["agent"], "")) for run in failed.values()]
    assert sorted(map(read, sentry.events)) == sorted(expected)


def read(event: dict[str, Any]) -> tuple[str, str, str, str]:
    """The run, agent and trigger that an event names, and the exception that it has."""
    raised = event.get("exception", {}).get("values", [])
    run, agent, trigger = (event.get("tags", {}).get(name, "") for name in ("run", "agent", "trigger"))
    return run, agent, trigger, str(raised[-1]["type"]) if raised else ""
