"""The team's SQL means what it means in its own project, where Django binds the values in the client."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.backends.postgresql.base import ServerBindingCursor
from django.test.utils import CaptureQueriesContext
from psycopg.types import TypeInfo

from agents import AgentRun
from runs.claim import Claim
from runs.db.sql import fetch
from runs.executor import execute
from runs.models import Run

pytestmark = pytest.mark.django_db(transaction=True)

# Each fails where the server binds the values, or did.
STATEMENTS: list[tuple[str, list[Any]]] = [
    ("SELECT now() - interval %s", ["1 day"]),
    ("SELECT %s IS NULL", [None]),
    ("SELECT jsonb_build_object('a', %s)", ["b"]),
    ("SELECT 1; SELECT 2", []),
    ("SET LOCAL TIME ZONE %s", ["Europe/Vienna"]),
    ("CREATE TEMPORARY TABLE noted (at text DEFAULT %s) ON COMMIT DROP", ["now"]),
    ("SELECT id FROM runs_run WHERE status IN (%s, %s) LIMIT %s", ["queued", "failed", 1]),
    ("SELECT concat(%s, %s)", ["a", 1]),
]


def execute_all() -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        for statement, parameters in STATEMENTS:
            cursor.execute(statement, parameters)
    assert not Run.objects.filter(seq__in=range(2_000_000, 2_070_000)).exists()  # more than a statement has parameters


def test_ordinary_statements_work_in_commands_and_pages() -> None:
    execute_all()


def test_ordinary_statements_work_in_a_body(claim_for: Callable[..., Claim]) -> None:
    def body(run: AgentRun) -> str:
        execute_all()
        return "done"

    execute(claim_for(body))

    assert Run.objects.values_list("status", "error").get() == ("succeeded", "")


def test_statements_of_ours_are_prepared_and_no_others() -> None:
    connection.close()
    for _ in range(5):
        fetch("SELECT %s::int + 1", [1])
        with connection.cursor() as cursor:
            cursor.execute("SELECT %s::int + 2", [1])
        Run.objects.filter(seq=-1).exists()

    prepared = {statement for (statement,) in fetch("SELECT statement FROM pg_prepared_statements")}

    assert "SELECT $1::int + 1" in prepared
    assert not [statement for statement in prepared if "+ 2" in statement or '"runs_run"' in statement]


def test_statements_of_the_team_are_not_kept_by_the_driver_but_what_they_remove_is_noticed() -> None:
    connection.close()
    for number in range(5):
        fetch("SELECT %s::int + 1", [1])
        with connection.cursor() as cursor:
            cursor.execute("SELECT %s::int", [number])
    manager: Any = connection.connection._prepared
    counted = [text for text, _ in (*manager._counts, *manager._names)]
    assert not [text for text in counted if text.startswith(b"SELECT 4")]

    for _ in range(3):
        with connection.cursor() as cursor:
            cursor.execute("DEALLOCATE ALL")
        assert fetch("SELECT %s::int + 1", [1]) == [(2,)]


def test_statements_of_ours_stand_in_the_log_of_django_also_once_they_are_prepared() -> None:
    connection.close()
    with CaptureQueriesContext(connection) as queries:
        for _ in range(5):
            fetch("SELECT %s::int + 1", [1])
    assert [query["sql"] for query in queries] == ["SELECT $1::int + 1"] * 5


def test_names_of_what_a_backend_has_prepared_before_are_not_given_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """PostGIS's looks for three types by one statement before Django has the connection, and its third execution is prepared."""
    mine = connection.copy()
    connect = mine.get_new_connection

    def connect_and_look(parameters: dict[str, Any]) -> Any:
        driver = connect(parameters)
        for name in ("geometry", "geography", "raster"):
            TypeInfo.fetch(driver, name)
        return driver

    monkeypatch.setattr(mine, "get_new_connection", connect_and_look)
    mine.connect()
    try:
        make: Any = ServerBindingCursor  # Django's stubs know no driver
        cursor = make(mine.connection)
        for number in range(4):
            assert cursor.execute("SELECT %s::int", [number]).fetchall() == [(number,)]
    finally:
        mine.close()
