"""What a body leaves to transaction.on_commit: it runs after the run's commit, for a bounded time, and no other run pays."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
from django.db import transaction
from django.db.models.functions import Now

from agents import AgentRun
from runs.claim import Claim, claim_along
from runs.db.sql import execute as execute_sql
from runs.executor import execute
from runs.models import Run, Worker
from tests.support.runs import AGENTS, statuses

pytestmark = pytest.mark.django_db(transaction=True)


def test_no_run_is_claimed_along_where_hooks_wait(first_of_two: Callable[..., Claim], worker: Worker) -> None:
    seen: list[list[str]] = []

    def body(run: AgentRun) -> None:
        transaction.on_commit(lambda: seen.append(statuses()))

    along = execute(first_of_two(body), lambda: claim_along(worker.id, "default", AGENTS))

    assert along is None
    assert seen == [["succeeded", "queued"]]


def test_hooks_of_a_body_run_in_order_and_one_that_raises_stops_no_other(first_of_two: Callable[..., Claim]) -> None:
    ran: list[str] = []

    def fail() -> None:
        raise OSError("no mail today")

    def body(run: AgentRun) -> None:
        transaction.on_commit(lambda: ran.append("first"))
        transaction.on_commit(fail)
        transaction.on_commit(lambda: ran.append("last"))

    execute(first_of_two(body))

    assert (ran, statuses()) == (["first", "last"], ["succeeded", "queued"])


def test_hooks_end_at_the_runs_timeout(first_of_two: Callable[..., Claim]) -> None:
    ran: list[str] = []

    def hang() -> None:
        time.sleep(600)

    def body(run: AgentRun) -> None:
        transaction.on_commit(hang)
        transaction.on_commit(lambda: ran.append("last"))

    execute(first_of_two(body, policy={"timeout": 0.2}))

    assert statuses() == ["succeeded", "queued"]


def test_a_hook_that_does_not_stop_ends_its_process() -> None:
    """Nothing in Python could: the hook catches everything, and holds on."""
    program = """
import time
from types import SimpleNamespace
import django
django.setup()
from runs.attempt import hooks

def hang():
    while True:
        try:
            time.sleep(600)
        except BaseException:
            pass

hooks.HARD_DEADLINE_AFTER = 0.5
policy = SimpleNamespace(timeout=0.2)
hooks.run_hooks(SimpleNamespace(policy=policy, run_id="r", agent="a"), [hang])
"""
    ended = subprocess.run([sys.executable, "-c", program], env=dict(os.environ), capture_output=True, timeout=120)

    assert ended.returncode == 1
    assert b"in hang" in ended.stderr


def test_the_time_of_a_run_begins_with_its_body(first_of_two: Callable[..., Claim]) -> None:
    overdue: list[bool] = []
    claim = first_of_two(lambda run: overdue.append(Run.objects.filter(deadline_at__lt=Now()).exists()))
    # The answer to the claim took a minute and a half, longer than the body may take.
    execute_sql(
        "UPDATE runs_run SET claimed_at = claimed_at - interval '90 s', deadline_at = deadline_at - interval '90 s'"
    )
    assert Run.objects.filter(deadline_at__lt=Now()).exists()

    execute(replace(claim, asked=claim.asked - 90))

    assert (overdue, statuses()[0]) == ([False], "succeeded")
