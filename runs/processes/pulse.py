"""The pulse of a process: a file on its own host that its loop renews, with or without the database. `manage.py alive` reads it
(`runs.processes.probe`), for what restarts frozen processes.

It is no row, because no row is renewed while the database is away, and a probe would then restart every process and end what they run.
The loop renews it, and no thread beside it, so that a loop that no longer comes round is noticed. Whether a process may claim work is
decided by its row alone, and much sooner.

Only modules of Python are imported here: a probe that runs every few seconds costs no more than a start of Python.
"""

import fcntl
import os
import stat
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

FOLDER = "WAKEFUL_PULSE_FOLDER"
EVERY = 1.0  # seconds: a loop that comes round more often writes no more often
TRIES = 3  # in a row that fail before it is logged: a probe that looks at the same moment makes one of them fail
# Two installations of a user on a host have their code in two folders, or set WAKEFUL_PULSE_FOLDER.
INSTALLATION = f"{zlib.crc32(os.path.realpath(__file__).encode()):08x}"


def folder() -> Path:
    """One of this user's own, and of this installation, on this host."""
    temporary = os.environ.get("TMPDIR") or "/tmp"  # noqa: S108  (the folder in it must be this user's own)
    return Path(os.environ.get(FOLDER) or f"{temporary}/wakeful-{os.getuid()}-{INSTALLATION}")


@dataclass(frozen=True, kw_only=True)
class Beat:
    """The last one of a process that lives."""

    pid: int
    ago: float  # seconds
    limit: float  # seconds after which the process hangs


class Pulse:
    """Of this process; `limit`: seconds that a pass of its loop takes at most. Nothing is raised: a process works without a pulse,
    and logs why there is none; a probe reports that there is none."""

    def __init__(self, kind: str, *, limit: float) -> None:
        self.kind = kind
        self.limit = limit
        self._file: int | None = None
        self._at = float("-inf")
        self._failed = 0  # times in a row

    def beat(self) -> None:
        now = time.monotonic()  # one clock for all processes of a host; it is never set
        if now - self._at < EVERY:
            return
        self._at = now
        try:
            self._write(now)
            self._failed = 0
        except OSError as error:
            self._failed += 1
            if self._failed == TRIES:
                self._warn(error)

    def _write(self, now: float) -> None:
        if self._file is None or not os.fstat(self._file).st_nlink:  # temporary files are removed after some days
            self._file = self._open()
        os.pwrite(self._file, f"{now:20.3f} {self.limit:10.1f}".encode(), 0)

    def _warn(self, error: OSError) -> None:
        import logging  # which a probe does without

        logging.getLogger(__name__).warning("The pulse of %s cannot be written into %s: %s", self.kind, folder(), error)

    def _open(self) -> int:
        there = folder()
        there.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = there.stat()
        if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o022:
            raise PermissionError(f"other users may write into {there}")
        list(read(self.kind))  # removes the files of processes that ended
        if self._file is not None:
            os.close(self._file)
            self._file = None
        path = there / f"{self.kind}.{os.getpid()}"
        file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # while this process lives; no child inherits it
        except OSError:  # a probe looks at it at this moment
            os.close(file)
            raise
        return file


def read(kind: str) -> Iterator[Beat]:
    """The last beats of the processes of a kind that live on this host. The files of those that ended are removed."""
    now = time.monotonic()
    for path in sorted(folder().glob(f"{kind}.*")):
        if path.suffix == f".{os.getpid()}":
            continue  # closing it would release its lock
        with suppress(OSError, ValueError):
            at, limit = _read(path)
            yield Beat(pid=int(path.suffix[1:]), ago=max(now - at, 0.0), limit=limit)


def _read(path: Path) -> tuple[float, float]:
    """When it beat, and its limit. FileNotFoundError: its process has ended."""
    with path.open("r+b") as file:
        try:
            # Shared: of two probes at the same moment, neither must take the other for the process.
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            at, limit = file.read(64).split()
            return float(at), float(limit)
        if (
            path.stat().st_ino == os.fstat(file.fileno()).st_ino
        ):  # the other may have removed it, and a new process made one
            path.unlink()
    raise FileNotFoundError(path)
