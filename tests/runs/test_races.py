"""Two who want the same run at the same time, and answers that never arrive."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction

from agents import Agent, AgentRun, registry
from agents.kernel.effects import Effects
from runs import body as running
from runs import claim as claiming
from runs import executor, keys, tasks
from runs.actions.cancel import cancel
from runs.attempt.commit import ClaimAnother, Next, commit
from runs.body import success_of
from runs.claim import Claim, claim_next, release_unbegun
from runs.executor import execute
from runs.models import Attempt, Queue, Run, Worker
from runs.worker import parent
from tests.support.runs import make_run
from tests.support.triggers import make_event

pytestmark = pytest.mark.django_db


@pytest.fixture
def worker(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> Worker:
    monkeypatch.setattr(parent, "WORKER_ID", worker.id)
    return worker


def elsewhere(action: Callable[[], None]) -> None:
    """Do it on a connection of its own."""

    def act() -> None:
        try:
            action()
        finally:
            connection.close()

    thread = threading.Thread(target=act)
    thread.start()
    thread.join(20)
    assert not thread.is_alive()


@transaction.atomic
def succeed(claim: Claim) -> None:
    commit(claim, success_of(claim, None, Effects()), Next())


@pytest.mark.django_db(transaction=True)
def test_a_blocked_run_promoted_while_it_is_being_cancelled_passes_its_slot_on(
    claim_for: Callable[..., Claim], monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = claim_for(lambda run: None, key="t:k", slot=1)
    second, third = (make_run(key="t:k", ready_at=None) for _ in range(2))
    calls: list[bool] = []
    lock = keys.lock

    def lock_late(key: str) -> None:
        # The run has been read as blocked; now its predecessor finishes and makes it ready.
        if not calls:
            calls.append(True)
            elsewhere(lambda: succeed(claim))
        lock(key)

    monkeypatch.setattr(keys, "lock", lock_late)
    cancel(second.id, by="test")

    second.refresh_from_db()
    third.refresh_from_db()
    assert (second.status, second.slot) == ("cancelled", None)
    assert (third.slot, third.ready_at is not None) == (1, True)


def test_a_cancel_of_a_running_run_wins_over_its_retry(claim_for: Callable[..., Claim]) -> None:
    def body(run: AgentRun) -> None:
        raise ValueError("try again")

    claim = claim_for(body, key="t:k", slot=1)
    blocked = make_run(key="t:k", ready_at=None)
    cancel(claim.run_id, by="test")

    execute(claim)

    run = Run.objects.get(pk=claim.run_id)
    assert (run.status, run.slot, run.due_at) == ("cancelled", None, None)
    assert Attempt.objects.get().outcome == "failed"
    blocked.refresh_from_db()
    assert blocked.ready_at is not None


def test_a_cancel_request_survives_the_release_of_its_run(claim_for: Callable[..., Claim], worker: Worker) -> None:
    claim = claim_for(lambda run: None)
    cancel(claim.run_id, by="test")

    release_unbegun(worker.id)

    assert Run.objects.get(pk=claim.run_id).status == "cancelled"


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    "error",
    [
        ValueError("\ud800"),
        asyncio.CancelledError("a future of its own"),
        SystemExit(3),
        KeyboardInterrupt(),
        Unspeakable(),
    ],
)
def test_every_exception_of_a_body_counts_as_an_attempt(
    error: BaseException, is_async: bool, claim_for: Callable[..., Claim]
) -> None:
    def body(run: AgentRun) -> None:
        raise error

    async def async_body(run: AgentRun) -> None:
        raise error

    claim = claim_for(async_body if is_async else body)
    execute(claim)

    run = Run.objects.get(pk=claim.run_id)
    assert (run.status, run.attempt, run.due_at is not None) == ("queued", 1, True)
    assert Attempt.objects.get().outcome == "failed"


def test_an_outcome_whose_answer_was_lost_is_recorded_once(
    claim_for: Callable[..., Claim], monkeypatch: pytest.MonkeyPatch
) -> None:
    def body(run: AgentRun) -> None:
        raise ValueError("no")

    claim = claim_for(body)
    tries: list[bool] = []

    def with_patience(action: Callable[[], Any]) -> Any:
        # Its first commit arrives, the answer does not.
        if action.__name__ == "once" and not tries:
            tries.append(True)
            action()
        return action()

    monkeypatch.setattr(executor, "with_patience", with_patience)
    execute(claim)

    assert [attempt.outcome for attempt in Attempt.objects.all()] == ["failed"]
    assert Run.objects.get(pk=claim.run_id).status == "queued"


def test_an_error_after_the_commit_changes_nothing(
    claim_for: Callable[..., Claim], monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = claim_for(lambda run: None)

    def failpoint(name: str) -> None:
        if name == "after_commit":
            raise RuntimeError("an on_commit hook of the user's")

    monkeypatch.setattr(running, "failpoint", failpoint)
    execute(claim)

    assert Run.objects.get(pk=claim.run_id).status == "succeeded"
    assert [attempt.outcome for attempt in Attempt.objects.all()] == ["succeeded"]


def test_a_claim_whose_answer_was_lost_is_released_and_claimed_again(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise no process looks until its deadline, which would fail a run that never began."""
    bodies = []
    monkeypatch.setitem(registry._agents, "greeter", Agent(name="greeter", body=lambda run: bodies.append(run.id)))
    run = make_run(event_id=make_event().id)
    real = claiming._claim
    tries: list[bool] = []

    def _claim(*arguments: Any) -> Claim | claiming.Nothing:
        claimed = real(*arguments)
        if not tries:
            tries.append(True)
            raise OperationalError("server closed the connection unexpectedly")
        return claimed

    monkeypatch.setattr(claiming, "_claim", _claim)
    monkeypatch.setattr(connection, "close", lambda: None)  # the test's transaction lives on it
    monkeypatch.setattr(tasks, "close_old_connections", lambda: None)
    tasks.doorbell("default")

    run.refresh_from_db()
    assert (run.status, run.attempt) == ("succeeded", 1)
    assert bodies == [run.id]
    assert [attempt.outcome for attempt in Attempt.objects.order_by("epoch")] == ["released", "succeeded"]


def test_a_broker_that_is_away_is_tried_once_a_slice_not_once_a_run(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry._agents, "greeter", Agent(name="greeter", body=lambda run: None))
    monkeypatch.setattr(tasks, "SLICE", 0.2)
    monkeypatch.setattr(tasks, "close_old_connections", lambda: None)  # the test's transaction lives on one
    done: list[str] = []

    def hand_over(queue: str) -> bool:
        done.append("rang")
        return False

    def count_and_execute(claim: Claim, claim_another: ClaimAnother) -> Claim | None:
        done.append("ran")
        return execute(claim, claim_another)

    monkeypatch.setattr(tasks, "hand_over", hand_over)
    monkeypatch.setattr(tasks, "execute", count_and_execute)
    for _ in range(20):
        make_run(event_id=make_event().id)

    tasks.doorbell("default")

    assert done.count("ran") == 20
    assert done.count("rang") < 10


@pytest.mark.django_db(transaction=True)
def test_many_who_claim_at_once_start_no_more_than_the_queue_lets() -> None:
    Queue.objects.create(name="default", max_running=3)
    for _ in range(10):
        make_run()
    workers = [Worker.objects.create(kind="worker", host="h", pid=n, version="1", concurrency=1) for n in range(8)]
    at_once, claims = threading.Barrier(len(workers)), []

    def claim(worker: Worker) -> None:
        connection.ensure_connection()
        at_once.wait(10)
        claims.append(claim_next(worker.id, "default", {"greeter": "1"}))
        connection.close()

    threads = [threading.Thread(target=claim, args=[worker]) for worker in workers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)

    assert len([claimed for claimed in claims if claimed]) == Run.objects.running().count() == 3
