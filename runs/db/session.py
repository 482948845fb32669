"""Database sessions of a durable run: read-only for its body; a transaction that writes declares itself read-write at
its beginning.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psycopg
from django.db import DEFAULT_DB_ALIAS, DatabaseError, connection, transaction
from django.db.backends.signals import connection_created

from runs.db.sql import Query, Row, execute, fetch_together

READ_ONLY = "SELECT set_config('default_transaction_read_only', 'on', false)"
# For sessions of the body's threads as well: a rescuer finds and ends every session of a run by its name.
NAMED_READ_ONLY = """
SELECT set_config('default_transaction_read_only', %s::text, false), set_config('application_name', %s::text, false)
"""
READ_WRITE = "SET default_transaction_read_only = off"
_name = ""
_is_ordinary = False
_connected_at = 0.0


@dataclass
class ReadOnly:
    """A block in which sessions are read-only. `rows`: of its queries. `ended`: the driver's connection that is read-write again."""

    rows: list[list[Row]]
    ended: Any = None

    @contextmanager
    def last_transaction(self) -> Iterator[list[Query]]:
        """The last transaction of the block, which may write. Yields the statements by which its commit also ends the block for the
        session."""
        global _name
        if not (connection.get_autocommit() or connection.in_atomic_block):
            connection.close()  # a body has switched autocommit off: nothing would ever be committed
        with writing():
            driver = connection.connection
            yield [(READ_WRITE, ())]
        if not connection.in_atomic_block:
            self.ended, _name = driver, ""


@contextmanager
def read_only(session_name: str, *queries: Query) -> Iterator[ReadOnly]:
    """Inside the block, the sessions of this process, in all threads, are read-only by default. The queries need no round trip of
    their own.
    """
    global _name
    _name = session_name
    block: ReadOnly | None = None
    try:
        _, *rows = fetch_together((READ_ONLY, ()), *queries)
        block = ReadOnly(rows)
        yield block
    finally:
        _name = ""
        if connection.connection is not None and not (block and block.ended is connection.connection):
            try:
                execute(READ_WRITE)
            except DatabaseError:
                connection.close()  # the next run of this process must not inherit it


@contextmanager
def ordinary() -> Iterator[None]:
    """Inside the block, a step of a durable body that is no transaction may write, as code that knows nothing of runs: each statement,
    or each transaction of its own, commits by itself."""
    global _is_ordinary
    _is_ordinary = True
    try:
        _switch(READ_WRITE)
        yield
    finally:
        _is_ordinary = False
        if connection.connection is not None:
            try:
                _switch(READ_ONLY)
            except DatabaseError:
                connection.close()  # the next session is read-only again


def _switch(statement: str) -> None:
    """By the driver: no change of the session that the body has made (`runs.attempt.clean_session`)."""
    connection.ensure_connection()
    driver: Any = connection.connection
    with connection.wrap_database_errors:
        driver.execute(statement)


def is_read_only() -> bool:
    """Are the sessions of this process read-only, since a durable body runs?"""
    return bool(_name) and not _is_ordinary


def seconds_connected() -> float:
    """The age of this process's newest session, if it has one now. A crash of the server ends all sessions."""
    return 0.0 if connection.connection is None else time.monotonic() - _connected_at


def _prepare(connection: Any, **kwargs: Any) -> None:
    global _connected_at
    _connected_at = time.monotonic()
    if _name and connection.alias == DEFAULT_DB_ALIAS:
        with connection.cursor() as cursor:
            cursor.execute(NAMED_READ_ONLY, ["off" if _is_ordinary else "on", _name])


connection_created.connect(_prepare)


@contextmanager
def writing() -> Iterator[None]:
    """A transaction that may write, in any thread. It needs no further statement: psycopg adds READ WRITE to BEGIN."""
    connection.ensure_connection()
    driver: Any = connection.connection
    driver.read_only = False
    try:
        with transaction.atomic():
            yield
    finally:
        with suppress(psycopg.Error):  # the connection is gone
            driver.read_only = None
