"""Limit how long a transaction or a session waits for a lock of another session."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

from django.db import DatabaseError, OperationalError, transaction
from psycopg.errors import DeadlockDetected, LockNotAvailable

from runs.db.sql import fetch

SET = "SELECT current_setting('lock_timeout'), set_config('lock_timeout', %s::text, true)"
RESTORE = "SELECT set_config('lock_timeout', %s::text, true)"
SET_SESSION = "SELECT current_setting('lock_timeout'), set_config('lock_timeout', %s::text, false)"
SET_STATEMENTS = "SELECT current_setting('statement_timeout'), set_config('statement_timeout', %s::text, false)"


class Locked(Exception):
    """Another session holds a lock, and this one stopped waiting for it; nothing was written."""


@contextmanager
def no_longer_than(wait: timedelta) -> Iterator[None]:
    """A transaction, or a savepoint, that waits at most `wait` for each lock. Raises Locked."""
    try:
        with transaction.atomic():
            [(before, _)] = fetch(SET, [f"{wait // timedelta(milliseconds=1)}ms"])
            yield
            fetch(RESTORE, [before])
    except OperationalError as error:
        if isinstance(error.__cause__, LockNotAvailable):
            raise Locked(str(error).strip()) from error
        raise


@contextmanager
def session_waits(wait: timedelta) -> Iterator[None]:
    """Inside the block, every transaction of this session waits at most `wait` for each lock."""
    [(before, _)] = fetch(SET_SESSION, [f"{wait // timedelta(milliseconds=1)}ms"])
    try:
        yield
    finally:
        with suppress(DatabaseError):  # the session may be gone, and the setting with it
            fetch(SET_SESSION, [before])


@contextmanager
def statements_take(most: timedelta) -> Iterator[None]:
    """Inside the block, every statement of this session takes at most this long."""
    [(before, _)] = fetch(SET_STATEMENTS, [f"{most // timedelta(milliseconds=1)}ms"])
    try:
        yield
    finally:
        with suppress(DatabaseError):  # the session may be gone, and the setting with it
            fetch(SET_STATEMENTS, [before])


def is_locked(error: BaseException) -> bool:
    """Did it fail because of a lock of another session?"""
    return isinstance(error, OperationalError) and isinstance(error.__cause__, (LockNotAvailable, DeadlockDetected))
