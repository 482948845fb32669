"""The next run, claimed in the commit that ends the one before: both happen, or neither."""

from collections.abc import Callable

import pytest
from django.db import connection, transaction

from agents import Agent, AgentRun, registry
from runs import body as running
from runs.claim import Claim, claim_along, claim_next
from runs.db.sql import execute as run_sql
from runs.db.sql import fetch
from runs.executor import execute
from runs.models import Attempt, Queue, Run, Worker
from tests.support.runs import AGENTS, make_run, statuses
from tests.support.triggers import make_event


def session() -> str:
    [(name,)] = fetch("SELECT current_setting('application_name')")
    return str(name)


def test_a_success_claims_the_next_run_in_its_own_commit(
    first_of_two: Callable[..., Claim], worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = first_of_two(lambda run: None)

    def neither_is_seen_alone(name: str) -> None:
        if name == "before_commit":
            assert connection.in_atomic_block
            assert statuses() == ["succeeded", "running"]
            assert session() == claim.session_name

    with monkeypatch.context() as during:
        during.setattr(running, "failpoint", neither_is_seen_alone)
        along = execute(claim, lambda: claim_along(worker.id, "default", AGENTS))

    assert along is not None
    assert statuses() == ["succeeded", "running"]
    assert execute(along) is None
    assert session() == along.session_name
    assert statuses() == ["succeeded", "succeeded"]


def test_a_body_that_fails_claims_nothing_along(first_of_two: Callable[..., Claim], worker: Worker) -> None:
    def body(run: AgentRun) -> None:
        raise ValueError("no")

    assert execute(first_of_two(body), lambda: claim_along(worker.id, "default", AGENTS)) is None

    assert statuses() == ["queued", "queued"]
    assert Run.objects.filter(attempt=0, ready_at__isnull=False).count() == 1


def test_a_commit_that_fails_takes_the_claim_along_back(
    first_of_two: Callable[..., Claim], worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str) -> None:
        if name == "before_commit":
            raise ValueError("no commit")

    monkeypatch.setattr(running, "failpoint", fail)
    claim = first_of_two(lambda run: None)
    assert execute(claim, lambda: claim_along(worker.id, "default", AGENTS)) is None

    assert statuses() == ["queued", "queued"]
    assert Attempt.objects.get().run_id == claim.run_id


def test_a_hook_that_fails_after_the_commit_does_not_lose_the_claim_made_along(
    first_of_two: Callable[..., Claim], worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str) -> None:
        if name == "after_commit":
            raise ValueError("a hook")

    claim = first_of_two(lambda run: None)
    with monkeypatch.context() as during:
        during.setattr(running, "failpoint", fail)
        along = execute(claim, lambda: claim_along(worker.id, "default", AGENTS))

    assert along is not None
    execute(along)
    assert statuses() == ["succeeded", "succeeded"]


def test_a_fenced_run_claims_nothing_along(first_of_two: Callable[..., Claim], worker: Worker) -> None:
    def body(run: AgentRun) -> None:
        Run.objects.filter(pk=run.id).update(epoch=7)

    calls: list[str] = []
    assert execute(first_of_two(body), lambda: calls.append("asked") or None) is None  # type: ignore[func-returns-value]

    assert not calls


def test_a_run_claimed_along_does_not_begin_if_another_process_has_taken_it(
    first_of_two: Callable[..., Claim], worker: Worker
) -> None:
    begun: list[object] = []
    claim = first_of_two(lambda run: begun.append(run.id))
    along = execute(claim, lambda: claim_along(worker.id, "default", AGENTS))
    assert along is not None
    Run.objects.filter(pk=along.run_id).update(epoch=along.epoch + 1)

    execute(along)

    assert begun == [claim.run_id]
    assert session() != along.session_name


def test_the_next_of_a_key_is_claimed_by_the_run_that_frees_it(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._agents, "greeter", Agent(name="greeter", body=lambda run: None))
    make_run(event_id=make_event().id, key="k", slot=1)
    make_run(event_id=make_event().id, key="k", ready_at=None)
    claim = claim_next(worker.id, "default", AGENTS)
    assert claim is not None

    along = execute(claim, lambda: claim_along(worker.id, "default", AGENTS))

    assert along is not None
    assert (along.key, along.slot) == ("k", 1)


def test_nothing_is_claimed_along_from_a_queue_with_a_limit_or_paused(
    first_of_two: Callable[..., Claim], worker: Worker
) -> None:
    claim = first_of_two(lambda run: None)
    Queue.objects.create(name="default", max_running=9)

    assert execute(claim, lambda: claim_along(worker.id, "default", AGENTS)) is None
    assert claim_next(worker.id, "default", AGENTS) is not None


@pytest.mark.django_db(transaction=True)
def test_a_body_that_has_chosen_its_isolation_claims_nothing_along(worker: Worker) -> None:
    make_run()

    with transaction.atomic():
        run_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        assert claim_along(worker.id, "default", AGENTS) is None
    with transaction.atomic():
        assert claim_along(worker.id, "default", AGENTS) is not None
