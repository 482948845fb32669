"""Sessions of the processes that wait: LISTEN on a connection of its own, and short timeouts on the working connection."""

import contextlib
from collections.abc import Sequence

import psycopg
from django.db import connection

from runs.db.poll import readable
from runs.db.sql import execute, fetch

# A stalled dispatcher or Beat must lose its locks, so that the next one takes over.
TIMEOUTS = (
    "SELECT set_config('idle_in_transaction_session_timeout', '5s', false), "
    "set_config('statement_timeout', '30s', false), set_config('lock_timeout', '2s', false)"
)


# The dispatcher need not wait for the disk: nothing outside depends on its commits before another process commits on top of them,
# and that commit flushes all earlier ones. A crash of the server loses the end of its work, which is done again. Commits of Beat
# and of workers must be on disk.
LAZY_COMMITS = "SELECT set_config('synchronous_commit', 'off', false)"


def set_lazy_commits() -> None:
    """Switch off synchronous commits. For the dispatcher alone, after every (re)connection."""
    fetch(LAZY_COMMITS)


def set_timeouts() -> None:
    """Call after every (re)connection of a dispatcher, a courier, a worker's parent or a Beat."""
    execute(TIMEOUTS)


class Listener:
    """Blocks until a NOTIFY on one of the channels, or a timeout. After a psycopg error, reopen it."""

    def __init__(self, channels: Sequence[str]) -> None:
        self.channels = channels
        self.connection: psycopg.Connection[object] | None = None

    def open(self) -> None:
        self.close()
        parameters = connection.get_connection_params()
        wanted = {
            name: value
            for name, value in parameters.items()
            if name not in ("cursor_factory", "context", "prepare_threshold")
        }
        self.connection = psycopg.connect(**wanted, autocommit=True)
        for channel in self.channels:
            self.connection.execute(f"LISTEN {channel}")

    def wait(self, timeout: float) -> bool:
        """True after a notification; several at once count as one."""
        if self.connection is None:
            raise psycopg.OperationalError("the listener is not open")
        # psycopg's own wait wakes ten times a second to check for signals; poll() sleeps, and a signal ends it as well.
        if not readable([self.connection.fileno()], timeout):
            return False
        return bool(list(self.connection.notifies(timeout=0)))

    def close(self) -> None:
        if self.connection is not None:
            with contextlib.suppress(psycopg.Error):
                self.connection.close()
        self.connection = None
