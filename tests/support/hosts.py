"""Hosts of one installation: each a process tree of its own, with a name, a folder and a web port of its own, that reaches PostgreSQL
and the broker only through cables that a test may cut.

    with hosts(stack, "a", "b") as (a, b):
        a.up("web", "dispatcher", "beat", "worker")
        b.up(...)
        b.database.silence()
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from config.stack import embedded
from tests.support.cables import Cable, cabling
from tests.support.stack import Process, Stack

KINDS = ("web", "dispatcher", "beat", "sources", "caller", "worker")
# Of a kind: is its newest process of this host alive, as the others see it?
SEEN = """
SELECT kind, bool_or(stopped_at IS NULL AND seen_at > %s) AS is_seen FROM runs_worker WHERE host = %s GROUP BY kind
"""


class Host:
    def __init__(self, name: str, stack: Stack, database: Cable, broker: Cable) -> None:
        self.name = name
        self.stack = stack
        self.database = database
        self.broker = broker
        self.within: list[str] = []  # the network namespace, if it has one of its own

    @property
    def processes(self) -> list[Process]:
        return self.stack.processes

    def up(self, *kinds: str, concurrency: int = 2, env: Mapping[str, str] | None = None) -> None:
        """Start one process of each kind."""
        started = [
            self.stack.start(kind, concurrency=concurrency, env=env, wait=False, within=self.within)
            for kind in kinds or KINDS
        ]
        for process in started:
            process.wait_ready()

    def kill(self) -> None:
        """As if its power had failed."""
        for process in self.processes:
            process.freeze()  # at one moment, as nearly as can be
        for process in self.processes:
            process.kill()

    def freeze(self) -> None:
        for process in self.processes:
            process.freeze()

    def thaw(self) -> None:
        for process in self.processes:
            process.thaw()

    def tend(self) -> None:
        """Start again what has ended, as systemd does."""
        for process in self.processes:
            if not process.is_alive():
                process.kill()  # what it may have left behind
                process.restart(wait=False)

    def unseen(self, since: Any) -> list[str]:
        """The kinds of its processes that the database has not heard from since then."""
        seen = {row["kind"] for row in self.stack.query(SEEN, since, self.name) if row["is_seen"]}
        return sorted({process.kind for process in self.processes} - seen)


@contextmanager
def hosts(
    stack: Stack, *names: str, env: Mapping[str, str] | None = None, address: str = "127.0.0.1"
) -> Iterator[list[Host]]:
    """Hosts on the servers of a stack whose own processes are not needed. `address`: of this machine, as they see it."""
    with cabling(address) as lay, ExitStack() as at_end:
        made = []
        for name in names:
            host = _host(stack, name, env or {}, lay)
            at_end.callback(host.stack.stop)
            made.append(host)
        yield made


def _host(stack: Stack, name: str, env: Mapping[str, str], lay: Callable[[int], Cable]) -> Host:
    folder = stack.folder / name
    folder.mkdir()
    database, broker = (lay(urlsplit(url).port or 0) for url in (stack.database_url, stack.redis_url))
    own = {
        **stack.env,
        **env,
        "WAKEFUL_HOST_NAME": name,
        "DATABASE_URL": _through(database, stack.database_url),
        "REDIS_URL": _through(broker, stack.redis_url),
        "CELERY_BROKER_URL": _through(broker, stack.redis_url),
        "WAKEFUL_HOME": str(folder / "home"),
    }
    own.pop("WAKEFUL_PORT")  # it has one of its own
    nothing = embedded.Servers(postgres=None, valkey=None)
    # The test itself asks the database without a cable.
    here = Stack(
        folder,
        database_url=stack.database_url,
        redis_url=stack.redis_url,
        env=own,
        servers=nothing,
        blocker=stack._blocker,
    )
    return Host(name, here, database, broker)


def _through(cable: Cable, url: str) -> str:
    parts = urlsplit(url)
    account = f"{parts.netloc.rpartition('@')[0]}@" if "@" in parts.netloc else ""
    return urlunsplit(parts._replace(netloc=f"{account}{cable.address}:{cable.port}"))
