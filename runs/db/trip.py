"""Several statements in one round trip. Where one fails, the server skips those after it: a COMMIT among them commits only if
all before it succeeded."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from django.db import InternalError, NotSupportedError, connection
from psycopg.errors import PipelineAborted
from psycopg.pq import TransactionStatus
from psycopg.rows import kwargs_row

from runs.db.outage import raise_if_away
from runs.db.sql import Parameters, fetch


class Answer:
    """The answer to one statement of a trip, to be read after the trip."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor

    @property
    def has_come(self) -> bool:
        return self._cursor.pgresult is not None

    def rows(self) -> list[Any]:
        rows: list[Any] = self._cursor.fetchall()
        return rows


class Trip:
    def __init__(self, driver: Any, pipeline: Any) -> None:
        self._driver, self._pipeline = driver, pipeline

    def add(self, statement: str, parameters: Parameters = (), make: Callable[..., Any] | None = None) -> Answer:
        """`make` is called with the columns of each row as keyword arguments."""
        cursor = self._driver.cursor(row_factory=kwargs_row(make)) if make else self._driver.cursor()
        # Prepared at its first use: one that the driver prepares later stays in its list even if the server has skipped it.
        cursor.execute(statement, parameters or None, prepare=True)
        return Answer(cursor)

    def wait(self) -> None:
        """Wait for the answers so far, in a round trip of its own."""
        vars(self._pipeline).pop("_communicate_gen", None)
        self._pipeline.sync()


@contextmanager
def one_trip() -> Iterator[Trip]:
    """Statements in a transaction, which begins here unless one is open. They may end it. The errors are those of Django."""
    connection.ensure_connection()
    connection.validate_no_broken_transaction()
    driver: Any = connection.connection
    if (driver.isolation_level, driver.read_only, driver.deferrable) != (None, None, None):
        fetch("SELECT")  # the driver begins the transaction as it was configured
    begins = driver.info.transaction_status == TransactionStatus.IDLE
    # Without autocommit the driver would wait for a BEGIN of its own, and send another one after a COMMIT.
    before, driver._autocommit = driver._autocommit, True
    try:
        with connection.wrap_database_errors, _pipeline(driver) as pipeline:
            trip = Trip(driver, pipeline)
            if begins:
                trip.add("BEGIN")
            yield trip
    except (InternalError, NotSupportedError) as error:
        raise_if_away(connection, error)
        raise
    finally:
        driver._autocommit = before


@contextmanager
def _pipeline(driver: Any) -> Iterator[Any]:
    """The driver's pipeline. All is sent at its end: statement by statement, both processes would be woken for each."""
    try:
        with _sent_at_its_end(driver) as pipeline:
            yield pipeline
    except PipelineAborted as skipped:
        # Of answers that come in two pieces, the driver raises the error of a statement that was skipped after the one that failed.
        failed = skipped.__context__
        if isinstance(failed, psycopg.Error) and not isinstance(failed, PipelineAborted):
            raise failed from None
        raise


@contextmanager
def _sent_at_its_end(driver: Any) -> Iterator[Any]:
    with driver.pipeline() as pipeline:
        pipeline._communicate_gen = lambda: iter(())
        try:
            yield pipeline
        finally:
            vars(pipeline).pop("_communicate_gen", None)
