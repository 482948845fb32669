"""Execute hand-written SQL.

Its parameters are sent beside it, so that PostgreSQL keeps its plan. All other statements of this process, such as those of the team's
code and of the ORM, are as Django sends them by default: with their values in them.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from threading import local
from typing import Any, TypeVar
from uuid import UUID

from django.db import DEFAULT_DB_ALIAS, connection
from django.db.backends.postgresql.base import ServerBindingCursor
from django.db.backends.signals import connection_created
from django.db.backends.utils import CursorWrapper
from psycopg._preparing import Key, Prepare, PrepareManager
from psycopg._queries import PostgresClientQuery, PostgresQuery
from psycopg.adapt import PyFormat, Transformer
from psycopg.rows import kwargs_row

Parameters = Sequence[Any] | Mapping[str, Any]
Query = tuple[str, Parameters]
Row = tuple[Any, ...]
T = TypeVar("T")
_kept = local()


class OfServer(PrepareManager):
    """Counts statements whose parameters the server binds, and no others: those of the team, with megabytes of values in them, would be
    kept as long as the session, and hide ours."""

    def maybe_add_to_cache(self, query: PostgresQuery, prep: Prepare, name: bytes) -> Key | None:
        if isinstance(query, PostgresClientQuery):
            # The key lets the driver look whether the statement has removed what is prepared.
            return None if self.prepare_threshold is None else self.key(query)
        return super().maybe_add_to_cache(query, prep, name)


class LoggedCursor(ServerBindingCursor):
    """Django's log of statements has them as they were sent, which the driver does not note of one that is prepared."""

    def _send_query_prepared(self, name: bytes, pgq: PostgresQuery, *, binary: bool | None = None) -> None:
        self._query = pgq
        super()._send_query_prepared(name, pgq, binary=binary)  # type: ignore[misc]  # Django's stubs lack it


def _count_ours(connection: Any, **kwargs: Any) -> None:
    if connection.alias == DEFAULT_DB_ALIAS:
        driver = connection.connection
        ours = OfServer()
        vars(ours).update(vars(driver._prepared))  # a backend such as PostGIS's may have prepared statements already
        driver._prepared = ours


connection_created.connect(_count_ours)


def cursor_of_server() -> Any:
    """A cursor of Django's whose parameters are bound by the server, which prepares the statements that are executed often."""
    connection.ensure_connection()
    driver: Any = connection.connection
    before = driver.cursor_factory
    driver.cursor_factory = LoggedCursor if connection.queries_logged else ServerBindingCursor
    try:
        return connection.cursor()
    finally:
        driver.cursor_factory = before


@lru_cache(maxsize=256)
def array(values: tuple[str | int, ...]) -> str:
    """The text of an array, for parameters that are sent again and again: psycopg would dump each element each time."""
    listed = list(values)
    return bytes(Transformer().get_dumper(listed, PyFormat.TEXT).dump(listed) or b"").decode()


def array_of(values: Iterable[Any]) -> str:
    """The text of an array of texts, numbers, ids, times, truth values and None. The driver looks for what to escape in each letter of
    each text, which takes longer than all else of a large INSERT."""
    return f"{{{','.join([_element(value) for value in values])}}}"


def _element(value: Any) -> str:
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    if isinstance(value, UUID):
        return value.hex
    return "NULL" if value is None else value.isoformat() if isinstance(value, datetime) else str(value)


def fetch(statement: str, parameters: Parameters = ()) -> list[tuple[Any, ...]]:
    with cursor_of_server() as cursor:
        cursor.execute(statement, parameters)
        rows: list[tuple[Any, ...]] = cursor.fetchall()
        return rows


def fetch_again(statement: str, parameters: Parameters = ()) -> list[tuple[Any, ...]]:
    """Like `fetch`, with a cursor that this thread keeps: to make one takes half as long as all else of a short statement."""
    cursor = getattr(_kept, "cursor", None)
    if cursor is None or not _is_of_now(cursor):
        cursor = _kept.cursor = cursor_of_server()
    cursor.execute(statement, parameters)
    rows: list[tuple[Any, ...]] = cursor.cursor.fetchall()
    return rows


def _is_of_now(cursor: Any) -> bool:
    """Whether a new cursor would be like this one: of this connection, and of this class, as statements may be logged now."""
    database, made = cursor.db, cursor.cursor  # `connection` looks up the thread's at each use
    driver = made.connection
    is_of_connection = database.connection is driver and type(made) is ServerBindingCursor
    return is_of_connection and type(cursor) is CursorWrapper and not database.queries_logged


def fetch_as(make: Callable[..., T], statement: str, parameters: Parameters = ()) -> list[T]:
    """Call `make`, such as a dataclass, with the columns of each row as keyword arguments."""
    with cursor_of_server() as cursor:
        cursor.cursor.row_factory = kwargs_row(make)
        cursor.execute(statement, parameters)
        made: list[T] = cursor.fetchall()
        return made


def fetch_column(statement: str, parameters: Parameters = ()) -> list[Any]:
    """The values of the only column."""
    return [value for (value,) in fetch(statement, parameters)]


def fetch_together(*queries: Query) -> list[list[Row]]:
    """The rows of several queries in one round trip, and outside of a transaction in one implicit transaction."""
    connection.ensure_connection()
    driver: Any = connection.connection
    cursors = [cursor_of_server() for _ in queries]
    with connection.wrap_database_errors, driver.pipeline():
        for cursor, (statement, parameters) in zip(cursors, queries, strict=True):
            cursor.execute(statement, parameters)
    return [cursor.fetchall() for cursor in cursors]


def execute(statement: str, parameters: Parameters = ()) -> int:
    """The number of affected rows."""
    with cursor_of_server() as cursor:
        cursor.execute(statement, parameters)
        return int(cursor.rowcount)


def fetch_many(statement: str, rows: Iterable[Parameters]) -> list[list[Row]]:
    """Execute a prepared statement for each row, in one round trip; the rows that each returned."""
    with connection.wrap_database_errors, cursor_of_server() as cursor:
        driver = cursor.cursor
        driver.executemany(statement, list(rows), returning=True)
        found = [driver.fetchall()] if driver.pgresult else []
        while driver.nextset():
            found.append(driver.fetchall())
        return found


def execute_many(statement: str, rows: Iterable[Parameters]) -> None:
    """Execute a prepared statement for each row, in one round trip."""
    with cursor_of_server() as cursor:
        cursor.executemany(statement, list(rows))


def database_now() -> datetime:
    """The database's clock, which alone decides what is due, late or old."""
    [(now,)] = fetch("SELECT clock_timestamp()")
    found: datetime = now
    return found
