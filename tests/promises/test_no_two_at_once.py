"""One running run per concurrency key; a worker that lost its lease can neither commit nor block its successor."""

import os
import signal
import time
from collections.abc import Callable

import psutil
import psycopg
import pytest
from django.contrib.auth.models import Group
from django.db import connection

from agents import AgentRun
from runs.claim import Claim
from runs.executor import execute
from runs.models import Attempt, Run, Step
from tests.integration.protocol import effects, emit, in_status, outcomes, runs, shop_stack, split
from tests.support.durable import Lab, lab
from tests.support.stack import StackMaker, eventually, within

__all__ = ["lab"]

# A dispatcher gives others a lease of time after it has connected.
RESCUES = "SELECT 1 FROM runs_worker WHERE kind = 'dispatcher' AND started_at < clock_timestamp() - interval '9 s'"
SHORT_LEASE = {"WAKEFUL_LEASE": "3s", "WAKEFUL_LEASE_RENEW": "1s"}


def test_a_killed_workers_run_goes_on_within_five_seconds(make_stack: StackMaker) -> None:
    stack = shop_stack(make_stack)
    workers = [stack.start("worker", concurrency=1) for _ in range(2)]
    eventually(lambda: stack.query(RESCUES))
    event = emit(stack, "sleep.a", "1", key="k", seconds=3)
    run = in_status(stack, event, "running")
    time.sleep(2)  # its body is under way

    victim, _ = split(workers, stack, run)
    victim.kill()
    with within(5):
        eventually(lambda: runs(stack, "id = %s AND status = 'running' AND epoch > %s", run["id"], run["epoch"]))

    run = in_status(stack, event, "succeeded")
    assert outcomes(stack, run) == ["lost", "succeeded"]
    assert effects(stack, event) == 1


@pytest.mark.chaos
def test_a_frozen_workers_locks_do_not_block_its_successor(make_stack: StackMaker) -> None:
    stack = shop_stack(make_stack, **SHORT_LEASE)
    workers = [stack.start("worker", concurrency=1) for _ in range(2)]
    event = emit(stack, "hold.a", "1", seconds=2)
    run = in_status(stack, event, "running")
    session = f"wakeful:{run['id']}:{run['epoch']}"
    eventually(
        lambda: stack.query(
            "SELECT 1 FROM pg_stat_activity WHERE application_name = %s AND xact_start IS NOT NULL", session
        )
    )
    time.sleep(0.5)

    frozen, _ = split(workers, stack, run)
    frozen.freeze()
    run = in_status(stack, event, "succeeded")
    assert outcomes(stack, run) == ["lost", "succeeded"]

    assert not stack.query("SELECT 1 FROM pg_stat_activity WHERE application_name = %s", session)
    frozen.thaw()
    eventually(lambda: "lease_lost" in frozen.output())
    assert effects(stack, event) == 1
    # It comes back as a new incarnation, and works.
    eventually(
        lambda: len(stack.query("SELECT 1 FROM runs_worker WHERE kind = 'worker' AND stopped_at IS NULL")) == 2, 30
    )
    assert frozen.is_alive()


def test_a_run_frozen_before_its_body_runs_it_on_a_live_connection_and_is_fenced(make_stack: StackMaker) -> None:
    stack = shop_stack(make_stack, **SHORT_LEASE)
    first = stack.start("worker", concurrency=1, env={"WAKEFUL_FAILPOINTS": "after_claim=stop*1"})
    event = emit(stack, "effect.a", "1")
    run = in_status(stack, event, "running")
    # Frozen in front of it, the child would stop there once it goes on.
    eventually(lambda: psutil.Process(run["pid"]).status() == psutil.STATUS_STOPPED)
    first.freeze()

    stack.start("worker", concurrency=1)
    eventually(lambda: runs(stack, "agent = 'effect' AND status = 'succeeded' AND epoch > 1"), 30)
    eventually(lambda: runs(stack, "agent = 'effect-b' AND status = 'succeeded'"), 30)
    assert effects(stack, event) == 2

    # The child first: the parent would end it as soon as it learns that its lease is gone.
    os.kill(run["pid"], signal.SIGCONT)
    eventually(lambda: "run.fenced" in first.output())
    first.thaw()
    eventually(lambda: "lease_lost" in first.output())
    assert len(stack.query("SELECT 1 FROM shop_effect WHERE run = %s", run["id"])) == 1


@pytest.mark.django_db
def test_a_run_taken_away_meanwhile_commits_nothing(claim_for: Callable[..., Claim]) -> None:
    def body(run: AgentRun) -> None:
        Group.objects.create(name="Ada")
        Run.objects.filter(pk=run.id).update(epoch=99)

    claim = claim_for(body)
    execute(claim)

    assert Run.objects.get().status == "running"
    assert not Group.objects.filter(name="Ada").exists()
    assert not Attempt.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_durable_run_that_lost_its_claim_commits_nothing_more(lab: Lab) -> None:
    def body(run: AgentRun) -> None:
        run.step("one", lambda: Group.objects.create(name="one").pk and None)
        info = connection.connection.info
        with psycopg.connect(info.dsn, password=info.password) as other:
            other.execute("UPDATE runs_run SET epoch = epoch + 1")
        run.step("two", lambda: Group.objects.create(name="two").pk and None)

    run = lab.run(body)

    assert run.status == "running"
    assert [group.name for group in Group.objects.all()] == ["one"]
    assert [step.key for step in Step.objects.all()] == ["one"]
