"""Hand-written SQL, where it pays: accept, dispatch, claim, finish."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from django.db import connection
from psycopg.rows import kwargs_row

Parameters = Sequence[Any] | Mapping[str, Any]
Query = tuple[str, Parameters]
Row = tuple[Any, ...]
T = TypeVar("T")


def fetch(statement: str, parameters: Parameters = ()) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows


def fetch_as(make: Callable[..., T], statement: str, parameters: Parameters = ()) -> list[T]:
    """What `make`, such as a dataclass, makes of each row: the names of the columns are those of its arguments."""
    with connection.cursor() as cursor:
        cursor.cursor.row_factory = kwargs_row(make)
        cursor.execute(statement, parameters)
        made: list[T] = cursor.fetchall()
        return made


def fetch_together(*queries: Query) -> list[list[Row]]:
    """The rows of several queries, asked in one round trip; outside a transaction they are one."""
    connection.ensure_connection()
    driver: Any = connection.connection
    cursors = [connection.cursor() for _ in queries]
    with connection.wrap_database_errors, driver.pipeline():
        for cursor, (statement, parameters) in zip(cursors, queries, strict=True):
            cursor.execute(statement, parameters)
    return [cursor.fetchall() for cursor in cursors]


def execute(statement: str, parameters: Parameters = ()) -> int:
    """The number of rows it touched."""
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return int(cursor.rowcount)


def execute_many(statement: str, rows: Iterable[Sequence[Any]]) -> None:
    """One prepared statement, pipelined: one round trip for all rows."""
    with connection.cursor() as cursor:
        cursor.executemany(statement, list(rows))


def database_now() -> datetime:
    """The one clock that decides what is due, late or old."""
    [(now,)] = fetch("SELECT clock_timestamp()")
    found: datetime = now
    return found
