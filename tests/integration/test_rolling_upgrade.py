"""Version N and version N + 1 side by side, as real processes: the old one has neither the new agents nor the new
columns, and nothing that the new one writes or sends disturbs it. Each is started by itself, as in production."""

from typing import Any

import pytest

from config.celery import app
from tests.integration.protocol import effects, emit, in_status, run_of
from tests.support.runs import make_run
from tests.support.stack import SHOP, Stack, StackMaker, eventually

OLD = {"WAKEFUL_VERSION": "1", "WAKEFUL_DEMO": "0"}
NEW = {"WAKEFUL_VERSION": "2"}


def upgraded_stack(make_stack: StackMaker) -> Stack:
    """Migrated and synced by the new version, whose agents are the shop's and the demo's."""
    return make_stack(env={**SHOP, "WAKEFUL_DEMO": "1", "WAKEFUL_SAFETY_LOOK": "2s"}, agents=True)


def changing_stack(make_stack: StackMaker) -> Stack:
    """Its agent `pay` is atomic in the old version and durable in the new one. The dispatcher is the old one: for it every
    run of `pay` is atomic."""
    stack = make_stack(env={**SHOP, "WAKEFUL_APPS": "shop,changing", "WAKEFUL_SAFETY_LOOK": "2s"}, agents=True)
    stack.start("dispatcher", env=OLD, by_itself=True)
    return stack


def left_by(stack: Stack, run: dict[str, Any]) -> list[str]:
    """Which code left the effects of a run, in their order."""
    return [row["agent"] for row in stack.query("SELECT agent FROM shop_effect WHERE run = %s ORDER BY id", run["id"])]


def versions(stack: Stack, kind: str) -> set[str]:
    return {row["version"] for row in stack.query("SELECT version FROM runs_worker WHERE kind = %s", kind)}


def version_that_ran(stack: Stack, run: dict[str, Any]) -> str:
    query = "SELECT worker.version FROM runs_attempt JOIN runs_worker worker ON worker.id = worker_id WHERE run_id = %s"
    return str(stack.query(query, run["id"])[0]["version"])


@pytest.mark.chaos
def test_a_worker_of_each_version_executes_only_the_agents_it_has(make_stack: StackMaker) -> None:
    stack = upgraded_stack(make_stack)
    stack.start("dispatcher", env=OLD, by_itself=True)
    stack.start("worker", env=OLD, by_itself=True)
    new_agents = emit(stack, "order.placed", "1", order="A-1", total="1")
    known_agents = emit(stack, "effect.one", "2")

    assert version_that_ran(stack, in_status(stack, known_agents, "succeeded")) == "1"
    waiting = run_of(stack, new_agents)
    assert (waiting["status"], waiting["attempt"], waiting["agent"]) == ("queued", 0, "order-intake")
    stack.query("UPDATE runs_run SET ready_at = ready_at - interval '31 s' WHERE id = %s", waiting["id"])  # it is late
    output = stack.manage("doctor", check=False).stdout
    assert "no live worker serves the queue and has the code of order-intake" in output

    stack.start("worker", env=NEW, by_itself=True)
    stack.start("dispatcher", env=NEW, by_itself=True)
    done = in_status(stack, new_agents, "succeeded")

    assert version_that_ran(stack, done) == "2"
    assert versions(stack, "worker") == versions(stack, "dispatcher") == {"1", "2"}
    assert stack.query("SELECT count(*) FROM runs_attempt WHERE run_id = %s", done["id"])[0]["count"] == 1


@pytest.mark.chaos
def test_a_ring_and_a_policy_of_another_version_are_understood_as_far_as_need_be(make_stack: StackMaker) -> None:
    stack = upgraded_stack(make_stack)
    worker = stack.start("worker", env=OLD, by_itself=True)
    with stack.orm():
        runs = [
            make_run(agent="effect", trigger="effect", policy={"retries": 1, "invented": {"by": "version 2"}}),
            make_run(agent="effect", trigger="effect", policy={"retries": "a few", "timeout": None}),
        ]

    # No dispatcher runs: only this ring of another version wakes the worker.
    with app.connection_for_write(stack.redis_url) as broker:
        app.send_task(
            "runs.doorbell", ("default", 2, {"also": "new"}), {"newest": 1}, queue="runs.default", connection=broker
        )

    started = "SELECT id FROM runs_run WHERE id = ANY(%s) AND attempt > 0"
    eventually(lambda: len(stack.query(started, [run.pk for run in runs])) == 2)
    errors = [row["error"] for row in stack.query("SELECT error FROM runs_attempt")]
    assert not [error for error in errors if "policy" in error.lower()]
    assert "TypeError" not in worker.output()


@pytest.mark.chaos
def test_old_processes_go_on_while_the_schema_is_ahead_of_them(make_stack: StackMaker) -> None:
    stack = upgraded_stack(make_stack)
    stack.start("web", env=OLD, wait=False, by_itself=True)
    stack.start("beat", env=OLD, wait=False, by_itself=True)
    stack.start("dispatcher", env=OLD, by_itself=True)
    stack.start("worker", env=OLD, by_itself=True)
    # Their statements are prepared by now.
    for number in range(5):
        before = emit(stack, "effect.before", f"before-{number}")
    in_status(stack, before, "succeeded")

    # What a migration may do while the code of before still runs: add what need not be given.
    for table in (
        "runs_run",
        "runs_worker",
        "runs_attemptrow",
        "triggers_event",
        "triggers_trigger",
        "triggers_schedule",
    ):
        stack.query(f"ALTER TABLE {table} ADD COLUMN invented text, ADD COLUMN counted int NOT NULL DEFAULT 0")
    stack.query("CREATE TABLE runs_invented (id bigserial PRIMARY KEY)")

    after = emit(stack, "effect.after", "after")
    in_status(stack, after, "succeeded")
    eventually(lambda: effects(stack, after) == 2)  # both agents of it
    eventually(stack.is_listening)
    assert stack.request("GET", "/health/ready").status == 200
    for process in stack.processes:
        assert process.is_alive()
        assert "cached plan must not change result type" not in process.output()


@pytest.mark.chaos
def test_in_a_mixed_fleet_what_was_begun_durably_is_ended_durably(make_stack: StackMaker) -> None:
    stack = changing_stack(make_stack)
    new = stack.start("worker", env=NEW, by_itself=True)
    events = [emit(stack, "pay.order", str(number)) for number in range(6)]
    waiting = [in_status(stack, event, "waiting") for event in events]
    assert not any(run["policy"]["durable"] for run in waiting)
    stack.start("worker", env=OLD, by_itself=True)

    # Both live: the old worker serves the queue, and leaves these runs to the new one.
    for event in events[:-1]:
        emit(stack, "settled", f"of {event}", of=event)
    by_old = emit(stack, "effect.one", "known to both")
    for event in events[:-1]:
        run = in_status(stack, event, "succeeded")
        assert run["result"] == "by durable code"
        assert left_by(stack, run) == ["durable: charge", "durable: receipt"]
    eventually(lambda: effects(stack, by_old) == 2)

    # The old one alone parks it, and repeats nothing.
    new.stop()
    emit(stack, "settled", "the last", of=events[-1])
    parked = in_status(stack, events[-1], "uncertain")
    assert "has a journal" in parked["status_reason"]
    assert left_by(stack, parked) == ["durable: charge"]

    stack.start("worker", env=NEW, by_itself=True)
    stack.manage("resolve", str(parked["id"]), "--outcome", "did_not_happen")
    assert in_status(stack, events[-1], "succeeded")["result"] == "by durable code"
    assert left_by(stack, parked) == ["durable: charge", "durable: receipt"]


@pytest.mark.chaos
def test_in_a_mixed_fleet_what_atomic_code_has_tried_durable_code_begins_from_the_start(make_stack: StackMaker) -> None:
    stack = changing_stack(make_stack)
    old = stack.start("worker", env=OLD, by_itself=True)
    done = emit(stack, "pay.order", "done")
    tried = emit(stack, "pay.order", "tried", fails=99)
    assert in_status(stack, done, "succeeded")["result"] == "by atomic code"
    run = run_of(stack, tried)
    eventually(lambda: stack.query("SELECT 1 FROM runs_attempt WHERE run_id = %s", run["id"]))
    old.stop()

    stack.query("UPDATE runs_run SET due_at = clock_timestamp() WHERE id = %s AND due_at IS NOT NULL", run["id"])
    stack.start("worker", env=NEW, by_itself=True)
    in_status(stack, tried, "waiting")
    stack.start("worker", env=OLD, by_itself=True)
    emit(stack, "settled", "it", of=tried)

    assert in_status(stack, tried, "succeeded")["result"] == "by durable code"
    # What atomic code had done was rolled back with its attempt; what it had ended is not begun again.
    assert left_by(stack, run) == ["durable: charge", "durable: receipt"]
    assert left_by(stack, run_of(stack, done)) == ["atomic"]
