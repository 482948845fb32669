"""How long a transaction waits for a lock that another session holds."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from django.db import OperationalError, transaction
from psycopg.errors import LockNotAvailable

from runs.sql import fetch

SET = "SELECT current_setting('lock_timeout'), set_config('lock_timeout', %s::text, true)"
RESTORE = "SELECT set_config('lock_timeout', %s::text, true)"


class Locked(Exception):
    """Another session holds a lock that this one did not wait for; nothing was written."""


@contextmanager
def no_longer_than(wait: timedelta) -> Iterator[None]:
    """A transaction, or a savepoint, that waits at most so long for each lock. Raises Locked."""
    try:
        with transaction.atomic():
            [(before, _)] = fetch(SET, [f"{wait // timedelta(milliseconds=1)}ms"])
            yield
            fetch(RESTORE, [before])
    except OperationalError as error:
        if isinstance(error.__cause__, LockNotAvailable):
            raise Locked(str(error).strip()) from error
        raise
