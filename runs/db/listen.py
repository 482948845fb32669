"""Sessions of the processes that wait: LISTEN on a connection of their own, and short tempers on the working one."""

import contextlib
from collections.abc import Sequence

import psycopg
from django.db import connection

from runs.db.readable import readable
from runs.db.sql import execute, fetch

# A stalled dispatcher or Beat must not hold its locks: the next one takes over.
TIMEOUTS = (
    "SELECT set_config('idle_in_transaction_session_timeout', '5s', false), "
    "set_config('statement_timeout', '30s', false), set_config('lock_timeout', '2s', false)"
)


# Their commits need not be on disk at once, though not in Beat's and the workers' sessions: the dispatcher tells nobody
# outside what it has done before somebody else has committed upon it, and that commit takes all earlier ones to the disk
# with it. What a crash of the server takes away is a tail of its work, which is done again.
LAZY_COMMITS = "SELECT set_config('synchronous_commit', 'off', false)"


def set_lazy_commits() -> None:
    """For the dispatcher alone, after every (re)connection."""
    fetch(LAZY_COMMITS)


def set_timeouts() -> None:
    """Call after every (re)connection of a dispatcher, a relay, a timer or a Beat."""
    execute(TIMEOUTS)


class Listener:
    """Blocks until a NOTIFY on one of the channels, or a time-out. psycopg errors mean: reopen it."""

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
        """True if anything was notified; notifications that came together count once."""
        if self.connection is None:
            raise psycopg.OperationalError("the listener is not open")
        # psycopg's own wait wakes ten times a second to look for signals; poll() sleeps, and a signal ends it too.
        if not readable([self.connection.fileno()], timeout):
            return False
        return bool(list(self.connection.notifies(timeout=0)))

    def close(self) -> None:
        if self.connection is not None:
            with contextlib.suppress(psycopg.Error):
                self.connection.close()
        self.connection = None
