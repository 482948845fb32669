"""The servers of a test run: embedded ones in a folder of their own, unless DATABASE_URL / REDIS_URL name others."""

import fcntl
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
from cryptography.fernet import Fernet

from config.stack import embedded

# What every process of a test needs, the test process itself included. Real variables win.
SETTINGS = {
    "SECRET_KEY": "for tests only: this one is known to everybody who reads it",
    "WAKEFUL_ENCRYPTION_KEYS": Fernet.generate_key().decode(),
    "WAKEFUL_ADMIN_PASSWORD": "correct horse battery staple",
    "WAKEFUL_API_TOKEN": "a-token-for-tests-only",
    "WAKEFUL_NOTIFY_NETWORKS": "127.0.0.0/8",  # where the receivers of tests are
    "WAKEFUL_ADOPT_PERIODIC_TASKS": "true",  # a test's database has no other Beat, unless the test says so
    "WAKEFUL_DIGEST_HOUR": "",  # no test depends on the time of day
}
MEMORY = Path("/dev/shm")  # noqa: S108  (folders in it have random names)
CONTAINER = Path("/sys/fs/cgroup")
PREFIX = "wakeful-test-"
GRACE = 60.0  # seconds in which a new folder is marked as in use
ROOM = 8 * 2**30  # bytes; what a whole run of the tests takes at most, several times


@dataclass(frozen=True, kw_only=True)
class TestServers:
    """Where the servers are; `embedded` lets a fault test kill and restart those that are ours."""

    __test__ = False

    database_url: str
    redis_url: str
    embedded: embedded.Servers
    home: Path

    @property
    def env(self) -> dict[str, str]:
        return {
            **SETTINGS,
            "WAKEFUL_HOME": str(self.home),
            "DATABASE_URL": self.database_url,
            "REDIS_URL": self.redis_url,
            "CELERY_BROKER_URL": self.redis_url,
        }


@contextmanager
def servers_for_tests(
    given: Mapping[str, str] = os.environ, *, fill: Callable[[Path], None] = lambda home: None
) -> Iterator[TestServers]:
    """Run what `given` does not name, on what `fill` has put into their folder; everything of it is gone afterwards."""
    with reachable_folder() as home:
        if "DATABASE_URL" not in given:
            fill(home)
        with embedded.servers(
            home, postgres="DATABASE_URL" not in given, valkey="REDIS_URL" not in given, durable=False
        ) as running:
            yield TestServers(
                database_url=running.postgres.url if running.postgres else given["DATABASE_URL"],
                redis_url=running.valkey.url if running.valkey else given["REDIS_URL"],
                embedded=running,
                home=home,
            )
            if running.postgres and running.postgres.process:
                running.postgres.process.send_signal(signal.SIGQUIT)  # nothing of it is read again: it writes nothing


def surroundings() -> dict[str, str]:
    """The environment of this process, but for what is said of Wakeful, its servers and the test that runs."""
    ours = ("WAKEFUL_", "DJANGO_", "PG", "PYTEST_")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def common() -> dict[str, str]:
    """What the environments of all processes that tests start have in common."""
    ours = {"DJANGO_SETTINGS_MODULE": "config.settings", "PYTHONUNBUFFERED": "1"}
    return {**surroundings(), **SETTINGS, **ours}


@contextmanager
def reachable_folder(*, on_disk: bool = False) -> Iterator[Path]:
    """A new folder for servers, in memory where there is room. As root, PostgreSQL runs as another user, who must get in."""
    memory = None if on_disk else _in_memory()
    if memory:
        sweep(memory)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=memory))
    folder.chmod(0o711)
    used = _lock(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(used)


def _in_memory() -> Path | None:
    """A file system in memory, which the files of a thousand databases cost a fifth of the CPU; None where it has no room, or where a
    program may not be run from it."""
    try:
        has = os.statvfs(MEMORY)
    except OSError:
        return None
    room = min(has.f_bavail * has.f_frsize, psutil.virtual_memory().available, _left_to_us())
    return MEMORY if os.access(MEMORY, os.W_OK) and not has.f_flag & os.ST_NOEXEC and room > ROOM else None


def sweep(memory: Path) -> None:
    """Remove folders of runs that were killed: they hold memory until the machine restarts."""
    for folder in memory.glob(f"{PREFIX}*"):
        with suppress(OSError):  # it is another user's, or in use
            if time.time() - folder.stat().st_mtime > GRACE:
                used = _lock(folder)
                shutil.rmtree(folder, ignore_errors=True)
                os.close(used)


def _lock(folder: Path) -> int:
    """Mark a folder as in use for as long as the result is open, by this process alone. OSError if it is marked."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(opened)
        raise
    return opened


def _left_to_us() -> float:
    """Bytes until the limit of the container that this process is in."""
    try:
        limit, used = (int((CONTAINER / name).read_text()) for name in ("memory.max", "memory.current"))
    except (OSError, ValueError):  # no container, or one without a limit
        return float("inf")
    return limit - used
