"""A kept cursor is as good as a new one: it belongs to the connection of now, and what watches statements sees its own. The server reads
the text of an array as the driver's."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from django.db import OperationalError, connection, connections
from django.test.utils import CaptureQueriesContext

from runs.db.sql import array_of, execute, fetch, fetch_again

pytestmark = pytest.mark.django_db(transaction=True)
PID = "SELECT pg_backend_pid()"


def test_a_closed_connection_is_replaced() -> None:
    [(before,)] = fetch_again(PID)
    connection.close()

    [(after,)] = fetch_again(PID)

    assert before != after
    assert fetch(PID) == [(after,)]


def test_a_session_that_was_ended_is_an_error_once() -> None:
    [(pid,)] = fetch_again(PID)

    def end() -> None:
        execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
        connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(end).result()
    with pytest.raises(OperationalError):
        fetch_again(PID)
    assert not connection.is_usable()
    connection.close()

    assert fetch_again(PID) != [(pid,)]


def test_an_error_leaves_it_usable() -> None:
    with pytest.raises(Exception, match="division by zero"):
        fetch_again("SELECT 1 / %s::integer", [0])

    assert fetch_again("SELECT %s::integer", [2]) == [(2,)]


def test_what_is_captured_has_its_statements_and_before_and_after_it_too() -> None:
    fetch_again("SELECT 1")
    with CaptureQueriesContext(connection) as captured:
        fetch_again("SELECT 2")
    fetch_again("SELECT 3")

    assert [one["sql"] for one in captured] == ["SELECT 2"]


def test_wrappers_of_statements_see_them() -> None:
    seen: list[str] = []
    fetch_again("SELECT 1")

    def note(execute, sql, params, many, context):  # type: ignore[no-untyped-def]
        seen.append(sql)
        return execute(sql, params, many, context)

    with connection.execute_wrapper(note):
        fetch_again("SELECT 2")

    assert seen == ["SELECT 2"]


def test_each_thread_has_its_own() -> None:
    [(mine,)] = fetch_again(PID)

    def other() -> int:
        [(pid,)] = fetch_again(PID)
        connections.close_all()
        assert isinstance(pid, int)
        return pid

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(other).result() != mine


NOON = datetime(2026, 1, 1, 12, 0, 0, 123, tzinfo=UTC)
STRANGE = ["", "NULL", "null", '"', "\\", '\\"', "{}", "a,b", " a ", "ä\n\t", "'", "{1,2}", "%s", None]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("text", STRANGE),
        ("uuid", [UUID(int=0), UUID(int=2**128 - 1), None]),
        ("smallint", [0, -1, 32767, None]),
        ("boolean", [True, False, None]),
        ("timestamptz", [NOON, None]),
        ("text", []),
    ],
)
def test_the_server_reads_the_text_of_an_array_as_its_values(kind: str, values: list[Any]) -> None:
    assert fetch(f"SELECT %s::{kind}[]", [array_of(values)]) == [(values,)]
