"""After a failover the new primary may lack what a claim committed before: nothing of that claim follows it."""

from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import Group

from agents import Agent, AgentRun, registry
from runs.claim import claim_next
from runs.db.sql import execute as run_sql
from runs.executor import execute
from runs.models import Primary, Run, Step, Worker
from runs.processes.rescue import Rescuer
from runs.processes.timeline import notice_failover
from tests.support.durable import Lab
from tests.support.runs import make_run
from tests.support.triggers import make_event

pytestmark = pytest.mark.django_db(transaction=True)


def move_to_another_timeline() -> None:
    """As after a promotion that the row of the claim outlived."""
    run_sql("ALTER FUNCTION runs_timeline() RENAME TO runs_timeline_before")
    run_sql("CREATE FUNCTION runs_timeline() RETURNS text LANGUAGE sql AS $$ SELECT '0000000F' $$")


@pytest.fixture(autouse=True)
def same_timeline_afterwards() -> Any:
    yield
    run_sql("SET default_transaction_read_only = off")
    if Primary.objects.raw("SELECT 1 AS id FROM pg_proc WHERE proname = 'runs_timeline_before'"):
        run_sql("DROP FUNCTION runs_timeline()")
        run_sql("ALTER FUNCTION runs_timeline_before() RENAME TO runs_timeline")


@pytest.fixture
def worker() -> Worker:
    return Worker.objects.create(id=uuid4(), kind="worker", host="h", pid=1, version="1", concurrency=1)


def test_neither_a_result_nor_a_step_is_committed_on_another_timeline(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def durable(run: AgentRun) -> None:
        run.step("one", lambda: done.append("one"))
        run_sql("SET default_transaction_read_only = off")
        move_to_another_timeline()
        run.step("two", lambda: Group.objects.create(name="two").name)

    lab = Lab(monkeypatch)
    lab.declare(durable)
    run = make_run(event_id=make_event().id, trigger="durable", policy={"durable": True})
    claim = lab.claim()
    assert claim and claim.timeline
    execute(claim)

    run.refresh_from_db()
    assert (run.status, done) == ("running", ["one"])
    assert [step.key for step in Step.objects.all()] == ["one"]
    assert not Group.objects.filter(name="two").exists()


def test_a_success_is_not_committed_on_another_timeline(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._agents, "greeter", Agent(name="greeter", body=lambda run: None))
    run = make_run(event_id=make_event().id)
    claim = claim_next(worker.id, "default", {"greeter": "1"})
    move_to_another_timeline()

    assert claim
    execute(claim)

    run.refresh_from_db()
    assert run.status == "running"


def test_a_failover_is_noticed_once_and_hands_on_its_runs(worker: Worker) -> None:
    assert not notice_failover()
    assert not notice_failover()
    run = make_run(event_id=make_event().id, policy={"retries": 0})
    assert claim_next(worker.id, "default", {"greeter": "1"})
    run_sql("SET application_name = 'the rescuer'")
    Primary.objects.update(identity="7/00000001")

    assert notice_failover()
    assert not notice_failover()

    primary = Primary.objects.get()
    assert (primary.previous, primary.known_until) == ("7/00000001", worker.seen_at or primary.known_until)
    worker.refresh_from_db()
    assert worker.stopped_reason == "failover"
    assert Rescuer().rescue() == 1
    run.refresh_from_db()
    assert (run.status, run.attempt, run.status_reason) == ("queued", 0, "released: the database failed over")


def test_a_server_that_does_not_show_its_timeline_executes_runs(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_sql("ALTER FUNCTION runs_timeline() RENAME TO runs_timeline_before")
    run_sql("CREATE FUNCTION runs_timeline() RETURNS text LANGUAGE sql AS $$ SELECT '' $$")
    monkeypatch.setitem(registry._agents, "greeter", Agent(name="greeter", body=lambda run: None))
    run = make_run(event_id=make_event().id)
    claim = claim_next(worker.id, "default", {"greeter": "1"})

    assert claim
    execute(claim)
    assert not notice_failover()

    assert Run.objects.get(pk=run.pk).status == "succeeded"
