"""What an error is about: the database, which gave no answer; the rows, which the database refuses; or neither of them."""

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import psycopg
import structlog
from django.db import DataError, IntegrityError, InterfaceError, OperationalError
from django.db import Error as DjangoDatabaseError

log = structlog.get_logger(__name__)

T = TypeVar("T")
DATABASE_ERRORS = (DjangoDatabaseError, psycopg.Error)
NO_ANSWER = (OperationalError, InterfaceError, psycopg.OperationalError, psycopg.InterfaceError)
# SQLSTATEs: the connection failed, the server ended the session or takes none, it ended a transaction that stood still or took too long.
SESSION_ENDED = ("08", "57P", "25P03", "25P04")
OF_ROWS = ("22", "23", "54")  # data, integrity, limits of PostgreSQL
ALIKE = 3  # things in a row that fail by no fault of theirs: nothing else would succeed


def is_gone(error: BaseException) -> bool:
    """Is the database away, or the session over? Any other error is the database's answer, or no error of the database."""
    if state := sqlstate_of(error):
        return state.startswith(SESSION_ENDED)
    return isinstance(error, NO_ANSWER)


def is_own(error: BaseException) -> bool:
    """May it be the fault of what was processed, and not of the schema, a right, a lock, the server or the machine?"""
    if isinstance(error, DATABASE_ERRORS):
        # The driver refuses some values itself, without an SQLSTATE.
        of_driver = not sqlstate_of(error) and isinstance(error, (DataError, IntegrityError, psycopg.DataError))
        return of_driver or sqlstate_of(error).startswith(OF_ROWS)
    return not isinstance(error, (MemoryError, OSError))


def sqlstate_of(error: BaseException) -> str:
    return getattr(_of_driver(error), "sqlstate", None) or ""


def name_of(error: BaseException) -> str:
    """The error without values of the row, so that errors with one cause have one name."""
    primary = getattr(getattr(_of_driver(error), "diag", None), "message_primary", None)
    return (primary or f"{type(error).__name__}: {error}")[:300]


def do_each(act: Callable[[T], int], things: Iterable[T]) -> int:
    """The sum of what `act` returns for each. One that fails does not stop the others, unless the database is gone: the error is
    raised when they are done."""
    count, failed = 0, list[Exception]()
    for thing in things:
        try:
            count += act(thing)
        except Exception as error:
            if is_gone(error):
                raise
            failed.append(error)
    for other in failed[1:]:
        log.error("work.refused", exc_info=other)
    if failed:
        raise failed[0]
    return count


def log_failure(log: Any, process: str, error: Exception, **details: Any) -> None:
    """Log that a pass of a process's loop has failed: a warning while it waits for the database, else an error of its own."""
    if is_gone(error):
        log.warning(f"{process}.database_gone", exc_info=error, **details)
    else:
        log.error(f"{process}.failed", exc_info=error, **details)


def _of_driver(error: BaseException) -> BaseException | None:
    return error if isinstance(error, psycopg.Error) else error.__cause__
