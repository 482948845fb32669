"""Heartbeat agents on real processes: a quiet gate asks no model, a kill between gate and run asks none twice, and an item that
always fails leaves the others alone."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.points import Points
from tests.support.stack import Process, Stack, StackMaker, eventually
from tests.support.wire import Call, Wire

USER_APPS = Path(__file__).parent.parent / "userapps"
HASTY = {
    "WAKEFUL_GATE_TIMEOUT": "2s",
    "WAKEFUL_LEASE": "3s",
    "WAKEFUL_LEASE_RENEW": "0.75s",
    "WAKEFUL_SAFETY_LOOK": "2s",
}
GATE = "SELECT gate.* FROM triggers_gate gate JOIN triggers_trigger trigger ON trigger.id = trigger_id WHERE slug = %s"
KILLED_BEFORE = ("after_gate", "before_gate_commit")


class Watch:
    """A stack with the keeper's agents, a wire as their model, and a worker with a single child."""

    def __init__(self, stack: Stack, wire: Wire) -> None:
        self.stack = stack
        self.wire = wire
        self.points = Points(stack.folder / "points")
        stack.query("UPDATE triggers_trigger SET policy = policy || '{\"backoff\": 0.2}'")
        self.worker: Process | None = None

    def up(self, *kinds: str) -> None:
        for kind in kinds:
            self.stack.start(kind)
        self.worker = self.stack.start("worker", env=self.points.env, concurrency=1)

    def items(self, *texts: str) -> None:
        """Give the keeper these items, as the code would declare them."""
        with self.stack.orm():
            from runs.actions.checklists import ItemEdit, create_checklist

            create_checklist("keeper", items=[ItemEdit(text=text) for text in texts], by="test")

    def fire(self, **data: Any) -> str:
        return str(self.stack.manage("fire", "keeper", "--data", json.dumps(data)).stdout.strip())

    def runs(self, event: str) -> list[dict[str, Any]]:
        return self.stack.query("SELECT * FROM runs_run WHERE %s::uuid = ANY(event_ids)", event)

    def succeeded(self, event: str) -> dict[str, Any]:
        return eventually(lambda: [run for run in self.runs(event) if run["status"] == "succeeded"])[0]

    def ended(self, event: str) -> None:
        """Its run has succeeded, or it has a decision."""
        query = """SELECT id FROM triggers_decision WHERE event_id = %s
                   UNION ALL SELECT seq FROM runs_run WHERE %s::uuid = ANY(event_ids) AND status = 'succeeded'"""
        eventually(lambda: self.stack.query(query, event, event))

    def decision(self, event: str) -> dict[str, Any]:
        return eventually(lambda: self.stack.query("SELECT * FROM triggers_decision WHERE event_id = %s", event))[0]

    def gate(self, slug: str = "keeper") -> dict[str, Any]:
        return (self.stack.query(GATE, slug) or [{"quiet": 0, "fired": 0, "failed": 0, "state": None}])[0]

    def outcomes(self, run: dict[str, Any]) -> list[str]:
        rows = self.stack.query("SELECT outcome FROM runs_attempt WHERE run_id = %s ORDER BY epoch", run["id"])
        return [row["outcome"] for row in rows]

    def verify(self) -> None:
        left = "SELECT (SELECT count(*) FROM runs_outboxmessage) + (SELECT count(*) FROM triggers_event WHERE dispatched_at IS NULL) AS n"
        eventually(lambda: self.stack.query(left)[0]["n"] == 0)
        self.stack.manage("verify")


@pytest.fixture
def watch(make_stack: StackMaker, wire: Wire) -> Watch:
    env = {**wire.env, **HASTY, "WAKEFUL_MODEL": "openai-chat:gpt-4o", "WAKEFUL_APPS": "keeper"}
    wire.script(
        "look", [Call("final_result", notify=True, text="3 runs failed", items=[{"item": 1, "outcome": "news"}])]
    )
    return Watch(make_stack(env={**env, "PYTHONPATH": str(USER_APPS)}, agents=True), wire)


@pytest.mark.chaos
def test_quiet_ticks_call_no_model_and_leave_no_run(watch: Watch) -> None:
    watch.up("dispatcher", "beat")

    eventually(lambda: watch.gate("idler")["quiet"] >= 3)

    decisions = watch.stack.query("SELECT outcome, reason FROM triggers_decision")
    assert len(decisions) >= 3
    assert {(row["outcome"], row["reason"]) for row in decisions} == {("quiet", "nothing to do")}
    assert not watch.stack.query("SELECT id FROM runs_attempt")
    assert not watch.wire.requests
    watch.verify()


@pytest.mark.chaos
def test_a_model_is_called_once_for_each_gate_that_fires(watch: Watch) -> None:
    watch.items("[script look each] Are there failed runs?")
    watch.up("dispatcher")

    for newest in (1, 1, 2, 2, 2):
        watch.ended(watch.fire(newest=newest))

    assert watch.wire.asked("each") == {0: 2}
    assert (watch.gate()["fired"], watch.gate()["quiet"], watch.gate()["state"]) == (2, 3, 2)
    assert watch.stack.query("SELECT text FROM runs_notification") == [{"text": "3 runs failed"}] * 2
    watch.verify()


@pytest.mark.chaos
@pytest.mark.parametrize("point", [*KILLED_BEFORE, "after_gate_commit"])
def test_a_kill_between_gate_and_run_asks_the_model_once(watch: Watch, point: str) -> None:
    watch.items(f"[script look {point}] Are there failed runs?")
    watch.up("dispatcher")
    watch.points.arm(point, "kill")

    run = watch.succeeded(event := watch.fire(newest=1))

    assert watch.points.hit(point)
    assert watch.outcomes(run) == ["lost", "succeeded"]
    assert watch.wire.asked(point) == {0: 1}
    assert (watch.gate()["fired"], watch.gate()["state"]) == (1, 1)
    assert len(watch.runs(event)) == 1
    watch.verify()


@pytest.mark.chaos
@pytest.mark.parametrize("point", [*KILLED_BEFORE, "after_gate_commit"])
def test_a_kill_around_a_quiet_answer_counts_it_once(watch: Watch, point: str) -> None:
    watch.up("dispatcher")
    watch.points.arm(point, "kill")

    event = watch.fire()

    if point in KILLED_BEFORE:
        assert watch.succeeded(event)["result"] == {"quiet": "nothing newer than None"}
    else:
        assert watch.decision(event)["outcome"] == "quiet"
        assert not watch.runs(event)
    assert watch.points.hit(point)
    assert (watch.gate()["quiet"], watch.gate()["fired"]) == (1, 0)
    assert not watch.wire.requests
    watch.verify()


@pytest.mark.chaos
def test_an_item_that_always_fails_leaves_the_others_alone(watch: Watch) -> None:
    items = [
        {"item": 1, "outcome": "news", "text": "3 failed"},
        {"item": 2, "outcome": "failed", "text": "the backup server does not answer"},
    ]
    watch.wire.script(
        "both",
        [Call("failed_runs"), Call("newest_backup")],
        [Call("final_result", notify=True, text="3 runs failed", items=items)],
    )
    watch.items("[script both pair] Are there failed runs?", "Is the newest backup older than a day?")
    watch.up("dispatcher")

    for newest in (1, 2):
        watch.succeeded(watch.fire(newest=newest))

    found = watch.stack.query("SELECT last_outcome, failures_in_a_row FROM agents_checklistitem ORDER BY position")
    assert [tuple(row.values()) for row in found] == [("news", 0), ("failed", 2)]
    assert watch.wire.asked("pair") == {0: 2, 1: 2}
    assert "does not answer" in str(watch.wire.of("pair")[1].body["messages"][-1])
    watch.verify()


@pytest.mark.chaos
def test_a_gate_that_hangs_is_killed_and_shown_and_the_next_one_is_called(watch: Watch) -> None:
    watch.up("dispatcher")

    hanging = watch.fire(hangs=True)
    eventually(
        lambda: [run for run in watch.runs(hanging) if run["status"] == "running"]
    )  # or the next event would join it
    after = watch.fire()

    run = eventually(lambda: [run for run in watch.runs(hanging) if run["status"] == "failed"])[0]
    assert run["status_reason"] == "deadline"
    watch.ended(after)
    assert watch.decision(after)["outcome"] == "quiet"
    watch.verify()
