"""A failover to a standby that had not received a claim: another worker claims the run under the same epoch. The claim's
identity distinguishes the two, so the first one commits nothing."""

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.contrib.auth.models import Group
from django.db import OperationalError, connection, transaction

from agents import Agent, AgentRun, registry
from agents.kernel.effects import Effects
from runs.attempt.failure import outcome_of
from runs.attempt.ownership import committed
from runs.claim import Claim, claim_next
from runs.db.sql import execute as run_sql
from runs.durable.progress import forget_intent, record_late
from runs.exceptions import RunLost
from runs.executor import execute, record
from runs.models import Attempt, Run, Step, Worker
from runs.worker.parent import FENCE_CANCELLED
from tests.support.durable import Lab
from tests.support.runs import make_run
from tests.support.triggers import make_event

pytestmark = pytest.mark.django_db(transaction=True)

AS_THE_STANDBY_HAS_IT = """
UPDATE runs_run SET status = 'queued', ready_at = clock_timestamp(), epoch = 0, attempt = 0, worker_id = NULL, pid = NULL,
  claimed_at = NULL, deadline_at = NULL, started_at = NULL, claim = NULL
WHERE id = %s::uuid
"""


def fail_over(run_id: UUID) -> Claim:
    """The claim of the run is lost; the claim that another worker makes of it then."""
    with transaction.atomic():
        run_sql("ALTER TABLE runs_run DISABLE TRIGGER run_changes_legally")
        run_sql(AS_THE_STANDBY_HAS_IT, [run_id])
        run_sql("ALTER TABLE runs_run ENABLE TRIGGER run_changes_legally")
    [(agent,)] = Run.objects.filter(pk=run_id).values_list("agent")
    claim = claim_next(a_worker().id, "default", {agent: "1"})
    assert claim is not None
    return claim


def a_worker() -> Worker:
    return Worker.objects.create(id=uuid4(), kind="worker", host="h", pid=1, version="1", concurrency=1)


@pytest.fixture
def claimed_twice(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Claim, Claim]]:
    """The claim of a run that is lost in a failover, and the one that the new primary has."""

    def claimed_twice(body: Callable[[AgentRun], Any] = lambda run: None, **how: Any) -> tuple[Claim, Claim]:
        monkeypatch.setitem(registry._agents, "greeter", Agent(name="greeter", body=body, **how))
        run = make_run(event_id=make_event().id)
        lost = claim_next(a_worker().id, "default", {"greeter": "1"})
        assert lost is not None
        known = fail_over(run.pk)
        assert (lost.run_id, lost.epoch) == (known.run_id, known.epoch)
        return lost, known

    return claimed_twice


def is_owned_by(claim: Claim) -> bool:
    return Run.objects.filter(pk=claim.run_id, status="running", epoch=claim.epoch, claim=claim.id).exists()


def test_a_lost_claim_neither_finishes_nor_fails_the_run(claimed_twice: Callable[..., tuple[Claim, Claim]]) -> None:
    lost, known = claimed_twice(lambda run: Group.objects.create(name="by a lost claim") and None)

    assert execute(lost) is None
    with pytest.raises(RunLost):
        committed(lost)
    with pytest.raises(RunLost):
        record(lost, outcome_of(OperationalError("server closed the connection unexpectedly"), lost))

    assert is_owned_by(known)
    assert not Group.objects.filter(name="by a lost claim").exists()
    assert not Attempt.objects.exists()


def test_the_parent_of_a_lost_claim_does_not_stop_the_run(claimed_twice: Callable[..., tuple[Claim, Claim]]) -> None:
    lost, known = claimed_twice()
    Run.objects.update(cancel_requested_at="2026-01-01T00:00Z")

    assert run_sql(FENCE_CANCELLED, [lost.run_id, lost.epoch, lost.id]) == 0
    assert is_owned_by(known)


def test_a_lost_claim_neither_forgets_nor_proves_the_intent_of_another(
    claimed_twice: Callable[..., tuple[Claim, Claim]],
) -> None:
    lost, known = claimed_twice()
    Step.objects.create(
        run_id=known.run_id, key="pay", position=0, effect="at_most_once", status="started", epoch=1, claim=known.id
    )

    with pytest.raises(RunLost):
        forget_intent(lost, "pay")
    record_late(lost, "pay", '"done by a lost claim"', Effects())

    assert Step.objects.get().status == "started"


def test_a_durable_body_of_a_lost_claim_commits_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    known: list[Claim] = []

    def body(run: AgentRun) -> str:
        if not known:
            run_sql("SET default_transaction_read_only = off")
            known.append(fail_over(run.id))
            connection.close()  # it was a session of the old primary
        run.step("book", lambda: Group.objects.create(name="by a lost claim").name)
        return "done by a lost claim"

    lab = Lab(monkeypatch)
    lab.declare(body)
    make_run(event_id=make_event().id, trigger="durable", policy={"durable": True})
    claim = lab.claim()
    assert claim is not None
    execute(claim)

    assert is_owned_by(known[0])
    assert not Group.objects.filter(name="by a lost claim").exists()
    assert not Step.objects.exists()
