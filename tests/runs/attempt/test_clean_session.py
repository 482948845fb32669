"""What a body changes in its session is gone before the next run, which may be another agent's."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from agents import Agent, AgentRun, registry
from runs.attempt.clean_session import CHANGES
from runs.claim import claim_along, claim_next
from runs.db.sql import execute as sql
from runs.db.sql import fetch
from runs.executor import execute
from runs.models import Run, Worker
from tests.support.runs import make_run
from tests.support.triggers import make_event

pytestmark = pytest.mark.django_db(transaction=True)
FOUND = """
SELECT current_setting('statement_timeout'), current_setting('search_path'), current_setting('TimeZone'),
  current_setting('default_transaction_read_only'), current_user = session_user,
  (SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'),
  (SELECT count(*) FROM pg_listening_channels()), to_pg_temp.found, current_setting('application_name')
FROM (SELECT to_regclass('pg_temp.left_over') IS NOT NULL AS found) to_pg_temp
"""


def wild(run: AgentRun) -> None:
    sql("SET statement_timeout = '40ms'")
    sql("SET search_path = pg_catalog")
    sql("SET TIME ZONE 'Asia/Tokyo'")
    fetch("SELECT pg_advisory_lock(42)")
    sql("LISTEN anything")


def wild_writes(run: AgentRun) -> None:
    sql("CREATE TEMPORARY TABLE left_over (id int)")
    wild(run)


def wild_steps(run: AgentRun) -> None:
    run.step("wild", lambda: wild_writes(run))


def wild_fails(run: AgentRun) -> None:
    wild_writes(run)
    raise ValueError("no")


@pytest.mark.parametrize(
    ("body", "durable"), [(wild_writes, False), (wild_fails, False), (wild, True), (wild_steps, True)]
)
def test_the_next_run_finds_a_clean_session(
    body: Callable[[AgentRun], None], durable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    worker = Worker.objects.create(id=uuid4(), kind="worker", host="h", pid=1, version="1", concurrency=1)
    looks = Agent(name="looks", body=lambda run: seen.extend(fetch(FOUND)))
    monkeypatch.setattr(registry, "_agents", {"wild": Agent(name="wild", body=body, durable=durable), "looks": looks})
    first = make_run(event_id=make_event().id, trigger="wild", policy={"durable": durable, "retries": 0})
    make_run(event_id=make_event().id, trigger="looks")
    agents = {"wild": "1", "looks": "1"}
    sessions = [pid()]

    claim = claim_next(worker.id, "default", agents)
    assert claim
    claim = execute(claim, lambda: claim_along(worker.id, "default", agents)) or claim_next(
        worker.id, "default", agents
    )
    assert claim
    execute(claim)
    sessions.append(pid())

    first.refresh_from_db()
    assert first.status == ("failed" if body is wild_fails else "succeeded"), first.error
    path = '"$user", public'
    assert seen == [("0", path, "UTC", "off", True, 0, 0, False, claim.session_name)]
    assert sessions[0] == sessions[1]  # its prepared statements are kept


def pid() -> int:
    connection.ensure_connection()
    driver: psycopg.Connection[Any] = connection.connection
    return driver.info.backend_pid


def test_a_body_that_changes_nothing_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker.objects.create(id=uuid4(), kind="worker", host="h", pid=1, version="1", concurrency=1)
    monkeypatch.setitem(
        registry._agents, "greeter", Agent(name="greeter", body=lambda run: Run.objects.count() and None)
    )
    make_run(event_id=make_event().id)
    claim = claim_next(worker.id, "default", {"greeter": "1"})
    assert claim
    with CaptureQueriesContext(connection) as queries:
        execute(claim)

    assert not [
        query["sql"] for query in queries.captured_queries if "RESET" in query["sql"] or "DISCARD" in query["sql"]
    ]


@pytest.mark.parametrize(
    ("statement", "changes"),
    [
        ("SET LOCAL statement_timeout = 1", True),
        ("SELECT 1; set role x", True),
        ("select pg_catalog.set_config('search_path', %s, false)", True),
        ("SELECT pg_try_advisory_lock_shared(1)", True),
        ("UPDATE shop SET name = 'SET'", False),
        ("SELECT pg_advisory_xact_lock(1)", False),
        ('SAVEPOINT "s1"', False),
    ],
)
def test_statements_that_change_a_session_are_recognized_by_their_text(statement: str, changes: bool) -> None:
    assert bool(CHANGES.search(statement)) is changes
