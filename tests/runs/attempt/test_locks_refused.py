"""The body of an atomic agent takes none of the locks that dispatch, other runs or edits of schedules need."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from asgiref.sync import sync_to_async
from django.db import connection, transaction

from agents import Agent, AgentRun, registry
from agents.exceptions import LockRefused
from agents.testing import run_agent
from runs.actions.cancel import cancel
from runs.actions.requeue import requeue
from runs.claim import claim_next
from runs.db.sql import fetch
from runs.executor import execute
from runs.models import Run, Worker
from tests.support.runs import make_run
from tests.support.triggers import make_event, make_paused_trigger
from triggers.dispatch.hold import resume
from triggers.models import Schedule, Trigger
from triggers.schedules.edit import create_schedule
from triggers.schedules.rules.interval import Interval

pytestmark = pytest.mark.django_db(transaction=True)

LOCKS = "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'"


def executed(monkeypatch: pytest.MonkeyPatch, body: Callable[[AgentRun], Any], *, durable: bool = False) -> Run:
    """A run of an agent with this body, claimed and executed."""
    worker = Worker.objects.create(
        id=uuid4(),
        kind="worker",
        host="h",
        pid=1,
        version="1",
        concurrency=1,
        agents=["keeper"],
        durable_agents=["keeper"] * durable,
    )
    monkeypatch.setitem(registry._agents, "keeper", Agent(name="keeper", body=body, durable=durable))
    run = make_run(event_id=make_event().id, agent="keeper", policy={"durable": durable, "retries": 3})
    claim = claim_next(worker.id, "default", {"keeper": "1"})
    assert claim
    execute(claim)
    run.refresh_from_db()
    return run


@pytest.fixture
def victim() -> Run:
    """A run of a key that has not begun, in a queue of its own."""
    return make_run(agent="other", queue="elsewhere", key="k", ready_at=None)


SERVICES: dict[str, Callable[[Run, Trigger], Any]] = {
    "cancel": lambda victim, trigger: cancel(victim.pk, by="keeper"),
    "requeue": lambda victim, trigger: requeue(victim.pk, by="keeper"),
    "resume": lambda victim, trigger: resume(trigger, by="keeper"),
    "create_schedule": lambda victim, trigger: create_schedule(
        name="hourly", rule=Interval.parse("1h"), trigger=trigger, by="keeper"
    ),
}


@pytest.mark.parametrize("name", SERVICES)
def test_an_atomic_body_that_calls_a_locking_service_fails_with_the_fix(
    monkeypatch: pytest.MonkeyPatch, victim: Run, name: str
) -> None:
    trigger, locks = make_paused_trigger(), list[int]()

    def body(run: AgentRun) -> None:
        before = fetch(LOCKS)[0][0]  # a test before this one may have left some to the session
        try:
            SERVICES[name](victim, trigger)
        finally:
            locks.append(fetch(LOCKS)[0][0] - before)

    run = executed(monkeypatch, body)

    assert (run.status, run.attempt, locks) == ("failed", 1, [0])
    assert f"agent 'keeper' is atomic: {name}() takes locks" in run.error
    assert "transaction.on_commit" in run.error
    assert "durable=True" in run.error
    victim.refresh_from_db()
    trigger.refresh_from_db()
    assert victim.status == "queued"
    assert trigger.is_paused
    assert not Schedule.objects.filter(task__name="hourly").exists()


def test_an_atomic_coroutine_is_refused_as_well(monkeypatch: pytest.MonkeyPatch, victim: Run) -> None:
    async def body(run: AgentRun) -> None:
        await sync_to_async(cancel)(victim.pk, by="keeper")

    run = executed(monkeypatch, body)

    assert run.status == "failed"
    assert "cancel() takes locks" in run.error


def test_a_locking_service_may_be_called_after_the_commit(monkeypatch: pytest.MonkeyPatch, victim: Run) -> None:
    run = executed(monkeypatch, lambda run: transaction.on_commit(lambda: cancel(victim.pk, by="keeper")))

    victim.refresh_from_db()
    assert (run.status, victim.status) == ("succeeded", "cancelled")


def test_a_locking_service_may_be_called_in_a_step_of_a_durable_agent(
    monkeypatch: pytest.MonkeyPatch, victim: Run
) -> None:
    def body(run: AgentRun) -> None:
        run.step("stop the other", lambda: cancel(victim.pk, by="keeper").status)

    run = executed(monkeypatch, body, durable=True)

    victim.refresh_from_db()
    assert (run.status, victim.status) == ("succeeded", "cancelled")


def test_run_agent_refuses_the_same_locks(victim: Run) -> None:
    with pytest.raises(LockRefused, match=r"'keeper' is atomic: cancel\(\) takes locks"):
        run_agent(Agent(name="keeper", body=lambda run: cancel(victim.pk, by="keeper")), data={})

    assert not connection.in_atomic_block
    cancel(victim.pk, by="ann")
