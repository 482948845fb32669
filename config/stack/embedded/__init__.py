"""A real PostgreSQL and a real Valkey as children of this process, for development and single machines."""

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from config.stack.embedded.errors import EmbeddedError, Occupied
from config.stack.embedded.postgres import Postgres
from config.stack.embedded.valkey import Valkey

__all__ = ["EmbeddedError", "Postgres", "Servers", "Valkey", "servers"]


@dataclass(frozen=True, kw_only=True)
class Servers:
    """The servers that run; None for one that was not wanted."""

    postgres: Postgres | None
    valkey: Valkey | None

    @property
    def urls(self) -> dict[str, str]:
        """DATABASE_URL and REDIS_URL of what runs here."""
        urls = {}
        if self.postgres:
            urls["DATABASE_URL"] = self.postgres.url
        if self.valkey:
            urls["REDIS_URL"] = self.valkey.url
        return urls


@contextmanager
def servers(
    home: Path, *, postgres: bool = True, valkey: bool = True, durable: bool = True, say: Callable[[str], None] = print
) -> Iterator[Servers]:
    """Run the servers on the data in `home` and stop them at the end; `durable=False` trades fsync for speed in tests."""
    with locked(home), ExitStack() as stack:
        running = Servers(
            postgres=stack.enter_context(Postgres(home, durable=durable, say=say)) if postgres else None,
            valkey=stack.enter_context(Valkey(home, say=say)) if valkey else None,
        )
        yield running


@contextmanager
def locked(home: Path) -> Iterator[None]:
    """Hold `home` for this process alone, for as long as it lives."""
    try:
        home.mkdir(mode=0o711, parents=True, exist_ok=True)
        lock = os.open(home / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    except PermissionError:
        raise EmbeddedError(
            f"{home} is not ours to write. Run as the user it belongs to, or set WAKEFUL_HOME to a folder of your own."
        ) from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise Occupied(home, os.pread(lock, 32, 0).decode().strip()) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        with contextlib.suppress(OSError):
            os.close(lock)
