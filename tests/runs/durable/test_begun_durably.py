"""A run that has a journal is never executed as atomic, whichever versions wrote and claimed it."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from django.db.models.functions import Now

from agents import Agent, AgentRun, registry
from runs.actions.fork import fork
from runs.claim import Claim, claim_next
from runs.executor import execute
from runs.models import Run, Step, Wait, Worker
from runs.waits import end_due
from tests.support.runs import make_run
from tests.support.triggers import make_event

pytestmark = pytest.mark.django_db(transaction=True)


class Fleet:
    """Two workers: the agent is durable for one, atomic for the other. Its policy is that of a dispatcher that has it as
    atomic."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[str] = []
        self.monkeypatch = monkeypatch
        self.durable = self.worker(durable_agents=["pay"])
        self.atomic = self.worker()

    def worker(self, **fields: Any) -> Worker:
        return Worker.objects.create(
            id=uuid4(), kind="worker", host="h", pid=1, version="1", agents=["pay"], queues=["default"], **fields
        )

    def run(self, body: Callable[[AgentRun], Any]) -> Run:
        self.as_durable(body)
        return make_run(event_id=make_event().id, trigger="pay", policy={"durable": False, "retries": 3})

    def as_durable(self, body: Callable[[AgentRun], Any]) -> None:
        claim = self.claim(self.durable) if Run.objects.exists() else None
        self.monkeypatch.setitem(registry._agents, "pay", Agent(name="pay", body=body, durable=True))
        if claim:
            execute(claim)

    def as_atomic(self) -> Claim | None:
        self.monkeypatch.setitem(
            registry._agents, "pay", Agent(name="pay", body=lambda run: self.done.append("by atomic code"))
        )
        if claim := self.claim(self.atomic):
            execute(claim)
        return claim

    def claim(self, worker: Worker) -> Claim | None:
        return claim_next(worker.id, "default", {"pay": "1"})


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> Fleet:
    return Fleet(monkeypatch)


def pays_and_sleeps(run: AgentRun) -> None:
    run.step("charge", lambda: None, effect="at_most_once")
    run.sleep("1h")


def only_sleeps(run: AgentRun) -> None:
    run.sleep("1h")


def stops_after_its_intent(run: AgentRun) -> None:
    def charge() -> None:
        raise KeyboardInterrupt

    run.step("charge", charge, effect="at_most_once")


@pytest.mark.parametrize("body", [pays_and_sleeps, only_sleeps])
def test_atomic_code_leaves_a_run_with_a_journal_to_a_worker_with_durable_code(
    fleet: Fleet, body: Callable[[AgentRun], Any]
) -> None:
    run = fleet.run(body)
    fleet.as_durable(body)
    Wait.objects.update(due_at=Now())
    end_due(10)

    assert fleet.as_atomic() is None
    fleet.as_durable(body)

    run.refresh_from_db()
    assert (run.status, run.has_journal, fleet.done) == ("succeeded", True, [])


def test_atomic_code_parks_a_run_with_a_journal_if_no_worker_has_durable_code(fleet: Fleet) -> None:
    run = fleet.run(pays_and_sleeps)
    fleet.as_durable(pays_and_sleeps)
    Wait.objects.update(due_at=Now())
    end_due(10)
    Worker.objects.filter(pk=fleet.durable.pk).update(stopped_at=Now())

    assert fleet.as_atomic()

    run.refresh_from_db()
    assert (run.status, fleet.done) == ("uncertain", [])
    assert "has a journal" in run.status_reason


def test_an_intent_alone_is_a_journal(fleet: Fleet) -> None:
    run = fleet.run(stops_after_its_intent)
    fleet.as_durable(stops_after_its_intent)

    run.refresh_from_db()
    assert Step.objects.get().status == "started"
    assert run.has_journal


def test_has_journal_of_a_fork_depends_on_copied_entries(fleet: Fleet) -> None:
    run = fleet.run(pays_and_sleeps)
    fleet.as_durable(pays_and_sleeps)

    copied = fork(run.pk, by="ann", step=Wait.objects.get().key)
    empty = fork(copied.pk, by="ann")

    assert (copied.has_journal, empty.has_journal) == (True, False)


def test_a_journal_without_has_journal_of_an_older_version_is_found(fleet: Fleet) -> None:
    run = fleet.run(pays_and_sleeps)
    fleet.as_durable(pays_and_sleeps)
    Run.objects.update(has_journal=False)
    Wait.objects.update(due_at=Now())
    end_due(10)

    assert fleet.as_atomic()

    run.refresh_from_db()
    assert (run.status, fleet.done) == ("uncertain", [])
