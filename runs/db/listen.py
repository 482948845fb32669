"""Sessions of the processes that wait: LISTEN on a connection of its own, and short timeouts on the working connection."""

import contextlib
from collections.abc import Sequence

import psycopg
from django.db import connection

from runs.db import standstill
from runs.db.poll import readable
from runs.db.sql import execute, fetch

# PostgreSQL ends the sessions of a host that has vanished within half a minute, and not after the two hours of most systems.
KEEPALIVES = {"tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3"}
# A stalled dispatcher or Beat must lose its locks, so that the next one takes over.
TIMEOUTS = (
    "SELECT set_config('idle_in_transaction_session_timeout', '5s', false), "
    "set_config('statement_timeout', '30s', false), set_config('lock_timeout', '2s', false), "
    + ", ".join(f"set_config('{name}', '{value}', false)" for name, value in KEEPALIVES.items())
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
    standstill.watch(connection.connection)


def listen(channel: str) -> None:
    """Let the working connection receive NOTIFYs on the channel; see `notified`. Call after every (re)connection."""
    execute(f"LISTEN {channel}")


def working_session() -> list[int]:
    """The descriptor of the working connection, if it is open: readable after a NOTIFY, and once its session has ended."""
    return [] if connection.connection is None else [connection.connection.fileno()]


def notified() -> bool:
    """Has the working connection heard a NOTIFY? OperationalError if its session has ended. Call it also before a wait: a NOTIFY may
    have come with the answer of a statement."""
    if connection.connection is None:
        return False
    with connection.wrap_database_errors:
        return bool(list(connection.connection.notifies(timeout=0)))


class Listener:
    """Blocks until a NOTIFY on one of the channels, or a timeout. After an error of the database, reopen it."""

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
        return bool(self.hear(timeout))

    def hear(self, timeout: float) -> set[str]:
        """The payloads of the notifications that have come; none after the timeout."""
        if self.connection is None:
            raise psycopg.OperationalError("the listener is not open")
        # psycopg's own wait wakes ten times a second to check for signals; poll() sleeps, and a signal ends it as well.
        if not readable([self.connection.fileno(), *working_session()], timeout):
            return set()
        notified()  # while its working session is gone, this process counts as dead
        return {notice.payload for notice in self.connection.notifies(timeout=0)}

    def close(self) -> None:
        if self.connection is not None:
            with contextlib.suppress(psycopg.Error):
                self.connection.close()
        self.connection = None
