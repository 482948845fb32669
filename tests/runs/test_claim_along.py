"""The next run, claimed in the commit that ends the one before: both happen, or neither."""

import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction

from agents import Agent, AgentRun, registry
from runs import body as running
from runs import tasks
from runs.claim import CLAIM_ALONG, Claim, Nothing, claim_along, claim_next, found_of, look
from runs.db import trip
from runs.db.sql import execute as run_sql
from runs.db.sql import fetch, fetch_as
from runs.executor import execute
from runs.models import Attempt, Queue, Run, Worker
from runs.worker import parent
from tests.support.runs import AGENTS, make_run, statuses
from tests.support.triggers import make_event


def session() -> str:
    [(name,)] = fetch("SELECT current_setting('application_name')")
    return str(name)


def claimed_along(worker: Worker) -> bool:
    [found] = fetch_as(found_of, CLAIM_ALONG, claim_along(worker.id, "default", AGENTS).parameters)
    return isinstance(found, Claim)


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
        during.setattr(trip, "is_armed", lambda name: True)
        during.setattr(trip, "failpoint", neither_is_seen_alone)
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

    monkeypatch.setattr(trip, "is_armed", lambda name: True)
    monkeypatch.setattr(trip, "failpoint", fail)
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

    assert execute(first_of_two(body), lambda: claim_along(worker.id, "default", AGENTS)) is None

    assert statuses() == ["running", "queued"]


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
        assert not claimed_along(worker)
    with transaction.atomic():
        assert claimed_along(worker)


@pytest.mark.django_db(transaction=True)
def test_a_fence_that_fails_takes_back_the_body_and_keeps_the_session(
    first_of_two: Callable[..., Claim], worker: Worker
) -> None:
    def body(run: AgentRun) -> None:
        Queue.objects.create(name="of-the-body")

    claim = first_of_two(body)
    [(before,)] = fetch("SELECT pg_backend_pid()")
    Run.objects.filter(pk=claim.run_id).update(epoch=claim.epoch + 1)

    for _ in range(4):  # a statement that the server skipped at its first uses is prepared by then
        execute(claim, lambda: claim_along(worker.id, "default", AGENTS))

    assert statuses() == ["running", "queued"]
    assert not Queue.objects.exists()
    along = execute(replace(claim, epoch=claim.epoch + 1), lambda: claim_along(worker.id, "default", AGENTS))
    assert along
    assert along.is_named
    assert fetch("SELECT pg_backend_pid(), current_setting('application_name')") == [(before, along.session_name)]


DEFERRED = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM 1 / 0; RETURN new; END $$;
CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON runs_queue DEFERRABLE INITIALLY DEFERRED
  FOR EACH ROW EXECUTE FUNCTION refuse();
"""


@pytest.mark.django_db(transaction=True)
def test_a_commit_that_the_database_refuses_fails_the_run_and_takes_the_claim_along_back(
    first_of_two: Callable[..., Claim], worker: Worker
) -> None:
    """The error is the body's own, so the body is not executed again without the next claim."""
    begun: list[object] = []

    def body(run: AgentRun) -> None:
        begun.append(run.id)
        Queue.objects.create(name="of-the-body")

    run_sql(DEFERRED)
    try:
        claim = first_of_two(body)
        assert execute(claim, lambda: claim_along(worker.id, "default", AGENTS)) is None
    finally:
        run_sql("DROP TRIGGER refuse ON runs_queue; DROP FUNCTION refuse()")

    assert begun == [claim.run_id]
    assert statuses() == ["queued", "queued"]
    assert "division by zero" in Run.objects.get(pk=claim.run_id).error


WAITS_FOR_A_LOCK = "SELECT wait_event_type IS NOT DISTINCT FROM 'Lock' FROM pg_stat_get_activity(%s)"


def until(holds: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < give_up_at
        time.sleep(0.01)


@pytest.mark.django_db(transaction=True)
def test_a_claim_along_whose_answer_is_lost_with_that_of_the_commit_is_released_and_made_again(
    first_of_two: Callable[..., Claim], worker: Worker
) -> None:
    begun: list[object] = []
    claim = first_of_two(lambda run: begun.append(run.id))

    driver = connection.connection

    def deafen() -> None:
        until(lambda: holder.execute(WAITS_FOR_A_LOCK, [driver.info.backend_pid]).fetchone() == (True,))
        # Closed for reading, it would still give what came meanwhile.
        here, there = socket.socketpair()
        there.close()
        os.dup2(here.fileno(), driver.fileno())
        here.close()
        holder.rollback()

    with psycopg.connect(driver.info.dsn, password=driver.info.password) as holder:
        holder.execute("LOCK TABLE runs_outboxmessage IN SHARE MODE")  # the end waits, until all is sent
        deafening = threading.Thread(target=deafen)
        deafening.start()
        assert execute(claim, lambda: claim_along(worker.id, "default", AGENTS)) is None
        deafening.join()
    until(lambda: statuses() == ["succeeded", "running"])  # the server has it all, but this process may be faster

    again = tasks.next_claim(worker.id, "default", AGENTS)

    assert again
    assert (again.attempt, again.epoch) == (1, 3)
    assert execute(again) is None
    assert begun == [claim.run_id, again.run_id]
    assert statuses() == ["succeeded", "succeeded"]


def test_a_ring_ends_where_the_commit_of_its_last_run_has_found_no_other(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parent, "WORKER_ID", worker.id)
    monkeypatch.setattr(tasks, "close_old_connections", lambda: None)  # the test's transaction lives on one
    monkeypatch.setitem(registry._agents, "greeter", Agent(name="greeter", body=lambda run: None))
    looks: list[object] = []

    def counted(*asked: Any) -> Claim | Nothing:
        looks.append(asked)
        return look(*asked)

    monkeypatch.setattr(tasks, "look", counted)
    for _ in range(3):
        make_run(event_id=make_event().id)

    tasks.doorbell("default")

    assert statuses() == ["succeeded"] * 3
    assert len(looks) == 1


def test_a_ring_goes_on_where_the_commit_could_claim_none_because_of_a_limit(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parent, "WORKER_ID", worker.id)
    monkeypatch.setattr(tasks, "close_old_connections", lambda: None)
    monkeypatch.setitem(registry._agents, "greeter", Agent(name="greeter", body=lambda run: None))
    Queue.objects.create(name="default", max_running=1)
    for _ in range(3):
        make_run(event_id=make_event().id)

    tasks.doorbell("default")

    assert statuses() == ["succeeded"] * 3
