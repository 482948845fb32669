"""One migrated PostgreSQL for all processes of a test run: the first makes it, the others begin with a copy of its folder."""

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psycopg

from config.stack import embedded
from tests.support.servers import SETTINGS, reachable_folder

ROOT = Path(__file__).resolve().parents[2]
DATABASE = "wakeful_migrated"
SHARED = (
    "WAKEFUL_TEST_SHARED"  # names the folder that processes share, in the environment of those that pytest-xdist starts
)


@contextmanager
def being_made() -> Iterator[None]:
    """It is made by a process of its own, while this one and those that it starts load their modules."""
    with subprocess.Popen([sys.executable, "-m", "tests.support.migrated"], cwd=ROOT) as making:
        try:
            yield
        finally:
            making.kill()


def fill(home: Path) -> None:
    """Put a PostgreSQL with a migrated database into `home`, where processes share one."""
    if SHARED in os.environ:
        take(Path(os.environ[SHARED]), home)


def take(shared: Path, home: Path) -> None:
    """Put a PostgreSQL with a migrated database into `home`, whose servers do not run yet."""
    copy_folder(make(shared), home / "postgres")


def make(shared: Path) -> Path:
    """The folder of the PostgreSQL that all begin with; it is made once. Processes take turns."""
    kept = shared / "postgres"
    with (shared / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            _make(kept)
    return kept


def _make(kept: Path) -> None:
    with reachable_folder() as home:
        with embedded.servers(home, valkey=False, durable=False) as running:
            assert running.postgres
            with psycopg.connect(running.postgres.url, autocommit=True) as connection:
                connection.execute(f"CREATE DATABASE {DATABASE}")
            _migrate({"WAKEFUL_HOME": str(home), "DATABASE_URL": running.postgres.url_of(DATABASE)})
        making = kept.with_name("new")
        copy_folder(home / "postgres", making)
        (making / "port").unlink()  # each copy has one of its own
        making.rename(kept)


def _migrate(own: Mapping[str, str]) -> None:
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("WAKEFUL_", "DJANGO_"))}
    command = [sys.executable, "manage.py", "migrate", "--no-input", "-v0"]
    subprocess.run(command, env={**ours, **SETTINGS, "WAKEFUL_DEMO": "1", **own}, cwd=ROOT, check=True)


def copy_folder(folder: Path, to: Path) -> None:
    subprocess.run(["cp", "-a", folder, to], check=True)  # with the owner of the files, who is another one for root


if __name__ == "__main__":
    make(Path(os.environ[SHARED]))
