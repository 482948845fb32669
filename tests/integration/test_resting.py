"""Processes with nothing to do ask rarely, are there at once when something is to be done, and are missed at once when they die."""

from functools import partial
from typing import Any

import pytest
from django_celery_beat.models import PeriodicTask

from agents.prompt_agents.definition import Definition
from runs.processes.lease import SPACE
from tests.integration.protocol import effects, emit, in_status, outcomes, runs, shop_stack, split
from tests.support.examples import some_cases
from tests.support.stack import Process, Stack, StackMaker, eventually, within
from triggers.prompt_agents.edit import create_prompt_agent

LOOK, REST = 2, 4  # seconds
ENV = {"WAKEFUL_SAFETY_LOOK": f"{LOOK}s", "WAKEFUL_LEASE": "3s", "WAKEFUL_LEASE_RENEW": "750ms"}
ROW = """
SELECT *, extract(epoch FROM expires_at - seen_at)::float8 AS lasts, clock_timestamp() AS now FROM runs_worker
WHERE kind = %s AND pid = ANY(%s) AND stopped_at IS NULL
"""
SESSION = """
SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND classid = %s AND objid::bigint = hashtext(%s::text) & 4294967295
"""
IDLE = "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND state_change < clock_timestamp() - interval '1 s'"
LONG = {"WAKEFUL_SAFETY_LOOK": "30s"}  # no look comes in time


def row_of(process: Process) -> dict[str, Any]:
    pids = [process.pid, *(child.pid for child in process.children())]  # the web process is a child of its server
    [row] = process.stack.query(ROW, process.kind, pids) or [{}]
    return row


def rests(process: Process) -> bool:
    return (row_of(process).get("lasts") or 0) > 2 * LOOK + 1


def test_a_resting_worker_takes_a_run_at_once_and_has_a_lease_while_it_runs(make_stack: StackMaker) -> None:
    stack = shop_stack(make_stack, **ENV)
    worker = stack.start("worker", concurrency=1)
    eventually(lambda: rests(worker))

    with within(2):
        event = emit(stack, "sleep.a", "1", key="k", seconds=3)
        in_status(stack, event, "running")
        eventually(lambda: round(row_of(worker)["lasts"]) == 3)
    seen = [eventually(lambda: row_of(worker))["seen_at"]]
    while not runs(stack, "status = 'succeeded'"):
        row = row_of(worker)
        assert round(row["lasts"]) == 3
        seen.append(row["seen_at"])
    assert len(set(seen)) >= 3  # it renews as often as any worker
    eventually(lambda: rests(worker))


@pytest.mark.chaos
def test_a_worker_that_is_frozen_when_it_has_just_begun_after_a_rest_loses_its_run_after_the_lease(
    make_stack: StackMaker,
) -> None:
    stack = shop_stack(make_stack, **ENV)
    workers = [stack.start("worker", concurrency=1) for _ in range(2)]
    for worker in workers:
        eventually(partial(rests, worker))
    event = emit(stack, "sleep.a", "1", key="k", seconds=1)
    run = in_status(stack, event, "running")

    frozen, _ = split(workers, stack, run)
    frozen.freeze()
    with within(3 + 3):
        eventually(lambda: runs(stack, "id = %s AND epoch > %s", run["id"], run["epoch"]))
    run = in_status(stack, event, "succeeded")
    assert outcomes(stack, run) == ["lost", "succeeded"]
    frozen.thaw()
    eventually(lambda: "lease_lost" in frozen.output())
    assert effects(stack, event) == 1


@pytest.mark.parametrize("kind", some_cases(["worker", "dispatcher", "web", "beat", "sources"]))
def test_the_doctor_misses_a_resting_process_that_was_killed(kind: str, make_stack: StackMaker) -> None:
    stack = make_stack()
    process = stack.start(kind)
    row = eventually(lambda: row_of(process))
    eventually(lambda: row_of(process)["expires_at"])

    process.kill()
    eventually(lambda: not stack.query(SESSION, SPACE, row["id"]))
    # At the default settings, within what was the lease of a worker.
    with within(8):
        eventually(lambda: not alive(stack, kind), every=0.2)


def alive(stack: Stack, kind: str) -> bool:
    from runs.processes.alive import alive

    with stack.orm():
        return alive().filter(kind=kind).exists()


@pytest.mark.chaos
@pytest.mark.parametrize("kind", ["dispatcher", "worker", "beat", "sources"])
def test_a_resting_process_whose_session_is_ended_comes_back_before_it_is_missed(
    kind: str, make_stack: StackMaker
) -> None:
    stack = make_stack(env=LONG)
    process = stack.start(kind)
    row = eventually(lambda: row_of(process))
    [session] = eventually(lambda: stack.query(SESSION, SPACE, row["id"]))

    eventually(lambda: stack.query(IDLE, session["pid"]))  # it has begun

    stack.query("SELECT pg_terminate_backend(%s)", session["pid"])
    with within(3):
        eventually(lambda: stack.query(SESSION + "AND pid <> %s", SPACE, row["id"], session["pid"]))
    assert row_of(process)["id"] == row["id"]


@pytest.mark.chaos
def test_a_resting_worker_hears_of_a_new_prompt_agent(make_stack: StackMaker) -> None:
    stack = make_stack(env={**LONG, "WAKEFUL_LEASE_RENEW": "20s", "WAKEFUL_LEASE": "60s"})
    worker = stack.start("worker")
    eventually(lambda: row_of(worker)["expires_at"])
    with stack.orm():
        create_prompt_agent("reader", Definition(instructions="Read."), by="cli:test")

    with within(3):
        eventually(lambda: "reader" in row_of(worker)["agents"])


@pytest.mark.chaos
def test_a_resting_sources_process_hears_of_a_source(make_stack: StackMaker, tmp_path: Any) -> None:
    stack = make_stack(env={**LONG, "WAKEFUL_LEASE_RENEW": "1s", "WAKEFUL_FILE_ROOTS": str(tmp_path)})
    first, second = stack.start("sources"), stack.start("sources")
    eventually(lambda: min(row_of(first)["lasts"] or 0, row_of(second)["lasts"] or 0) > 60)

    add = "INSERT INTO triggers_source (id, slug, kind, settings, enabled) VALUES (gen_random_uuid(), 'inbox', 'directory', %s, true)"
    stack.query(add, f'{{"directory": "{tmp_path}"}}')
    with within(3):
        [owner] = eventually(lambda: stack.query("SELECT owner_id FROM triggers_reading WHERE owner_id IS NOT NULL"))
    owned, other = sorted((first, second), key=lambda process: row_of(process)["id"] != owner["owner_id"])
    assert row_of(owned)["lasts"] < 10  # its lease

    owned.stop()  # in order: it gives the source back
    with within(3):
        eventually(lambda: stack.query("SELECT 1 FROM triggers_reading WHERE owner_id = %s", row_of(other)["id"]))
    owned.restart()
    other.kill()
    with within(8 + 3):
        eventually(lambda: stack.query("SELECT 1 FROM triggers_reading WHERE owner_id = %s", row_of(owned)["id"]))


def test_beat_that_rests_fires_a_schedule_that_falls_due(make_stack: StackMaker) -> None:
    from tests.integration.protocol import make_ticker

    stack = make_stack(env=ENV)
    beat = stack.start("beat")
    eventually(lambda: "beat.listening" in beat.output())
    make_ticker(stack, every="1s")
    with stack.orm():
        eventually(lambda: PeriodicTask.objects.filter(name="ticker", total_run_count__gt=2).exists())
