"""An asynchronous physical standby of an embedded PostgreSQL: fed, starved, promoted."""

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import psutil
import psycopg

from config.stack.embedded import EmbeddedError, Postgres
from config.stack.embedded.binaries import PostgresBinaries
from config.stack.embedded.postgres import DATABASE, USER
from config.stack.embedded.server import HOST, Server


class Standby(Postgres):
    """`home` is a folder of its own; the primary runs."""

    def __init__(self, primary: Postgres, home: Path, *, say: Callable[[str], None] = print) -> None:
        home.mkdir(mode=0o711, exist_ok=True)
        super().__init__(home, durable=False, say=say)
        self.primary = primary

    def start(self) -> None:
        self._remember("password", self.primary.password)
        Server.start(self)  # there is nothing to create

    def _initialize(self, binaries: PostgresBinaries) -> None:
        source = self.primary.url_of("postgres")
        copied = self._run(
            [binaries.bin / "pg_basebackup", "-D", self.data, "-d", source, "-R", "--checkpoint=fast", "--no-sync"]
        )
        if copied.returncode:
            raise EmbeddedError(f"pg_basebackup failed:\n{copied.stdout}{copied.stderr}")

    def promote(self) -> None:
        with psycopg.connect(self.url_of("postgres"), autocommit=True) as connection:
            connection.execute("SELECT pg_promote(true)")

    def is_streaming(self) -> bool:
        with psycopg.connect(self.primary.url_of("postgres"), autocommit=True) as connection:
            return bool(connection.execute("SELECT FROM pg_stat_replication WHERE state = 'streaming'").fetchall())

    def starve(self) -> int:
        """Freeze the primary's senders: from now on it commits without this standby. How many it froze."""
        with psycopg.connect(self.primary.url_of("postgres"), autocommit=True) as connection:
            senders = [pid for (pid,) in connection.execute("SELECT pid FROM pg_stat_replication").fetchall()]
        for pid in senders:
            with suppress(ProcessLookupError, psutil.NoSuchProcess):
                os.kill(pid, signal.SIGSTOP)
        return len(senders)


def url_of_both(primary: Postgres, standby: Postgres, database: str = DATABASE) -> str:
    """A URL of both, for clients that take the one that writes."""
    hosts, ports = f"{HOST},{HOST}", f"{primary.port},{standby.port}"
    return f"postgres://{USER}:{quote(primary.password)}@/{database}?host={hosts}&port={ports}"
