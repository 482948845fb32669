"""The servers of a test run: embedded ones in a folder of their own, unless DATABASE_URL / REDIS_URL name others."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography.fernet import Fernet

from config.stack import embedded

# What every process of a test needs, the test process itself included. Real variables win.
SETTINGS = {
    "SECRET_KEY": "for tests only: this one is known to everybody who reads it",
    "WAKEFUL_ENCRYPTION_KEYS": Fernet.generate_key().decode(),
    "WAKEFUL_ADMIN_PASSWORD": "correct horse battery staple",
    "WAKEFUL_API_TOKEN": "a-token-for-tests-only",
    "WAKEFUL_NOTIFY_NETWORKS": "127.0.0.0/8",  # where the receivers of tests are
    "WAKEFUL_DIGEST_HOUR": "",  # no test depends on the time of day
}


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
def test_servers(
    given: Mapping[str, str] = os.environ, *, fill: Callable[[Path], None] = lambda home: None
) -> Iterator[TestServers]:
    """Run what `given` does not name, on what `fill` has put into their folder; everything of it is gone afterwards."""
    with reachable_folder() as home:
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


def surroundings() -> dict[str, str]:
    """The environment of this process, but for what is said of Wakeful, its servers and the test that runs."""
    ours = ("WAKEFUL_", "DJANGO_", "PG", "PYTEST_")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def common() -> dict[str, str]:
    """What the environments of all processes that tests start have in common."""
    ours = {"DJANGO_SETTINGS_MODULE": "config.settings", "PYTHONUNBUFFERED": "1"}
    return {**surroundings(), **SETTINGS, **ours}


@contextmanager
def reachable_folder() -> Iterator[Path]:
    """A new folder for servers; as root, PostgreSQL runs as another user, who must get in."""
    folder = Path(tempfile.mkdtemp(prefix="wakeful-test-"))
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
