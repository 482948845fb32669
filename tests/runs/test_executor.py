"""One attempt: what commits, what is rolled back, and what becomes of the run."""

import asyncio
import contextlib
import itertools
import socket
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest
from django.contrib.auth.models import Group
from django.utils import timezone
from pydantic_ai import Agent as LlmAgent
from pydantic_ai.models.test import TestModel

from agents import AgentRun, Permanent, Retry
from runs.claim import Claim, claim_next, release_unbegun
from runs.executor import execute
from runs.models import Attempt, OutboxMessage, Queue, Run, Worker
from runs.states import RunStatus
from runs.transitions.leave import leave
from runs.transitions.outcome import Outcome
from tests.support.runs import make_run
from tests.support.stack import within
from triggers.models import Event, Source
from triggers.sources.databases.tables.keep import keep_tables

pytestmark = pytest.mark.django_db

Body = Callable[[AgentRun], Any]


def run_of(claim: Claim) -> Run:
    return Run.objects.get(pk=claim.run_id)


def test_retry_with_after_sets_the_time_of_the_next_attempt(claim_for: Callable[..., Claim]) -> None:
    def body(run: AgentRun) -> None:
        raise Retry(after=timedelta(hours=2))

    claim = claim_for(body)
    execute(claim)

    due_at = run_of(claim).due_at
    assert due_at is not None
    assert timedelta(minutes=119) < due_at - Attempt.objects.get().ended_at < timedelta(minutes=121)


def test_attempts_used_up_fail_the_run(claim_for: Callable[..., Claim]) -> None:
    def body(run: AgentRun) -> None:
        raise ValueError("again")

    claim = claim_for(body, attempt=3, policy={"retries": 3})
    execute(claim)

    run = run_of(claim)
    assert (run.status, run.status_reason, run.error) == ("failed", "attempts used up (4)", "ValueError: again")
    assert OutboxMessage.objects.get().payload["status"] == "failed"


def oversleep(run: AgentRun) -> None:
    with contextlib.suppress(Exception):
        time.sleep(5)


def dial_out(run: AgentRun) -> None:
    with socket.socket() as outside:
        outside.connect(("127.0.0.1", 9))


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (lambda run: (_ for _ in ()).throw(Permanent("never")), "Permanent: never"),
        (lambda run: {"when": object()}, "its result is not JSON"),
        (lambda run: float("nan"), "its result is not JSON"),
        (lambda run: run.emit("x", {"nul": "\x00"}), "NUL"),
        (lambda run: run.notify("\x00"), "its notification contains a NUL"),
        (lambda run: run.emit("x", subject="\x00"), "the emitted event 'x' contains a NUL"),
        (dial_out, "durable=True"),
        (oversleep, "DeadlineExceeded"),
    ],
    ids=["permanent", "no JSON", "not a number", "NUL", "NUL noted", "NUL in a subject", "network", "deadline"],
)
def test_a_permanent_error_fails_at_once(claim_for: Callable[..., Claim], body: Body, error: str) -> None:
    claim = claim_for(body, policy={"timeout": 0.2})
    execute(claim)

    run = run_of(claim)
    assert run.status == RunStatus.FAILED
    assert error in run.error


def test_a_claim_that_never_reached_its_process_is_released(claim_for: Callable[..., Claim], worker: Worker) -> None:
    claim = claim_for(lambda run: None)

    release_unbegun(worker.id)

    run = run_of(claim)
    assert (run.status, run.attempt) == ("queued", 0)
    assert run.epoch > claim.epoch
    assert Attempt.objects.get().outcome == "released"


@pytest.mark.parametrize("field", ["draining_at", "stopped_at"])
def test_a_worker_that_drains_or_is_closed_claims_nothing(worker: Worker, field: str) -> None:
    make_run()
    Worker.objects.update(**{field: "2026-01-01T00:00Z"})

    assert claim_next(worker.id, "default", {"greeter": "1"}) is None


def test_a_worker_unseen_for_a_lease_claims_nothing(worker: Worker) -> None:
    make_run()
    Worker.objects.update(seen_at="2026-01-01T00:00Z")

    assert claim_next(worker.id, "default", {"greeter": "1"}) is None


def test_a_worker_claims_only_agents_it_knows(worker: Worker) -> None:
    make_run(agent="stranger")

    assert claim_next(worker.id, "default", {"greeter": "1"}) is None


# Queues with a limit, or paused


PIDS = itertools.count(1000)


def claims(worker: Worker, count: int, *, queue: str = "default") -> list[Claim]:
    """So many children of the worker try to claim; those that got a run."""
    claimed = []
    for _ in range(count):
        with patch("os.getpid", return_value=next(PIDS)):
            claimed.append(claim_next(worker.id, queue, {"greeter": "1"}))
    return [one for one in claimed if one]


def test_a_queue_runs_no_more_at_once_than_its_limit(worker: Worker) -> None:
    for _ in range(4):
        make_run()
    Queue.objects.create(name="default", max_running=2)

    first = claims(worker, 4)

    assert len(first) == 2
    assert claims(worker, 4) == []
    leave(first[0].ticket, Outcome(status=RunStatus.SUCCEEDED))
    assert len(claims(worker, 4)) == 1


def test_the_limit_of_a_queue_is_its_own(worker: Worker) -> None:
    Queue.objects.create(name="default", max_running=1)
    for queue in ("default", "default", "other", "other"):
        make_run(queue=queue)

    assert len(claims(worker, 2)) == 1
    assert len(claims(worker, 5, queue="other")) == 2


@pytest.mark.parametrize("name", ["*", "default"])
def test_nothing_starts_from_a_paused_queue(worker: Worker, name: str) -> None:
    make_run()
    Queue.objects.create(name=name, paused_at=timezone.now(), paused_by="test")
    if name == "default":
        Queue.objects.filter(name=name).update(max_running=5)

    assert claims(worker, 1) == []

    Queue.objects.update(paused_at=None)
    assert len(claims(worker, 1)) == 1


# Async bodies


@pytest.mark.django_db(transaction=True)
def test_an_async_body_writes_in_the_runs_own_transaction(claim_for: Callable[..., Claim]) -> None:
    async def body(run: AgentRun) -> str:
        await Group.objects.acreate(name=run.event.data["name"])
        await asyncio.sleep(0)
        if run.attempt == 1:
            raise ValueError("not yet")
        run.emit("visitor.greeted")
        return "done"

    claim = claim_for(body)
    execute(claim)
    assert not Group.objects.filter(name="Ada").exists()

    Run.objects.filter(pk=claim.run_id).update(due_at=None, ready_at=timezone.now())
    again = claim_next(Worker.objects.get().id, "default", {"greeter": "1"})
    assert again is not None
    execute(again)

    assert (run_of(again).status, run_of(again).result) == ("succeeded", "done")
    assert Group.objects.filter(name="Ada").count() == 1
    assert OutboxMessage.objects.filter(topic="event").count() == 1


@pytest.mark.sampled
def test_an_async_body_is_stopped_at_its_deadline(claim_for: Callable[..., Claim]) -> None:
    async def body(run: AgentRun) -> None:
        await asyncio.sleep(60)

    claim = claim_for(body, policy={"timeout": 0.2})
    with within(5):
        execute(claim)

    assert (run_of(claim).status, run_of(claim).status_reason) == ("failed", "deadline")
    assert "0.2 s" in run_of(claim).error


def test_a_time_out_of_an_async_bodys_own_is_an_error_like_any_other(claim_for: Callable[..., Claim]) -> None:
    async def body(run: AgentRun) -> None:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(60)

    claim = claim_for(body)
    execute(claim)

    assert (run_of(claim).status, run_of(claim).status_reason) == ("queued", "retry after attempt 1")


def test_an_async_body_runs_no_llm_agent_by_itself_either(claim_for: Callable[..., Claim]) -> None:
    async def body(run: AgentRun) -> str:
        return (await LlmAgent(TestModel(), name="clerk").run("hello")).output

    claim = claim_for(body)
    execute(claim)

    assert run_of(claim).status == "failed"
    assert "LLM agent 'clerk' is run by itself" in run_of(claim).error


def test_an_async_body_has_no_network_either(claim_for: Callable[..., Claim]) -> None:
    async def body(run: AgentRun) -> None:
        await asyncio.open_connection("127.0.0.1", 9)

    claim = claim_for(body)
    execute(claim)

    assert run_of(claim).status == "failed"
    assert "NetworkRefused" in run_of(claim).error
    assert socket.getaddrinfo("127.0.0.1", 9), "refused within the body alone"


def test_changes_of_watched_tables_have_the_run_as_their_cause_and_its_taint(claim_for: Callable[..., Claim]) -> None:
    source = Source.objects.create(slug="groups", kind="table", settings={"table": "auth.Group"})
    keep_tables()

    def body(run: AgentRun) -> None:
        Group.objects.create(name="night")
        run.taint()

    claim = claim_for(body)
    execute(claim)

    event = Event.objects.get(source=source)
    assert (event.cause_run_id, event.root_id, event.chain) == (claim.run_id, claim.root_id, ["greeter"])
    assert event.is_tainted
