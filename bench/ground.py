"""What is measured, as processes: Wakeful and the peer on one embedded PostgreSQL and one embedded Valkey."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import redis

from bench.names import READY
from config import children, embedded
from tests.servers import reachable_folder
from tests.stack import ROOT, Stack, eventually, migrate

CONCURRENCY = 2
SETTINGS = {"WAKEFUL_APPS": "bench", "WAKEFUL_LOG_LEVEL": "WARNING"}


@dataclass(frozen=True, kw_only=True)
class Ground:
    """The servers, Wakeful's stack on them and the peer's worker, all of them ready."""

    postgres: embedded.Postgres
    valkey: embedded.Valkey
    stack: Stack
    peer_env: dict[str, str]
    peer: subprocess.Popen[bytes]

    @property
    def peer_store(self) -> "redis.Redis":
        # No time-out of its own: it waits for a drain as long as the bench does.
        return redis.Redis.from_url(self.peer_env["BENCH_BROKER"], decode_responses=True, socket_timeout=None)

    def wakeful_load(self, *arguments: object) -> "Load":
        return Load("bench.load", arguments, self.stack.env)

    def peer_load(self, *arguments: object) -> "Load":
        return Load("bench.peer_load", arguments, self.peer_env)

    def wakeful_cpu(self) -> float:
        """CPU seconds so far of all that a run needs: dispatcher, worker and both servers."""
        working = [process.pid for process in self.stack.processes if process.kind in ("dispatcher", "worker")]
        return cpu_seconds([*working, *self.server_pids])

    def peer_cpu(self) -> float:
        return cpu_seconds([self.peer.pid, *self.server_pids])

    @property
    def server_pids(self) -> list[int]:
        return [server.process.pid for server in (self.postgres, self.valkey) if server.process]


@contextmanager
def ground() -> Iterator[Ground]:
    """Everything in a temporary home of its own, with fsync as in production; all of it is gone afterwards."""
    with ExitStack() as at_end:
        home = at_end.enter_context(reachable_folder())
        servers = at_end.enter_context(embedded.servers(home, durable=True, say=lambda line: None))
        assert servers.postgres
        assert servers.valkey
        stack = Stack(
            home,
            database_url=servers.postgres.url,
            redis_url=servers.valkey.url,
            env=SETTINGS,
            servers=servers,
            blocker=None,
        )
        at_end.callback(stack.stop)
        migrate(stack.env)
        stack.manage("sync_agents")
        peer_env = _peer_env(servers.valkey)
        peer = _start_peer(home, peer_env)
        at_end.callback(children.kill_group, peer)
        for kind in ("dispatcher", "beat", "worker"):
            stack.start(kind, concurrency=CONCURRENCY)
        ready = Ground(postgres=servers.postgres, valkey=servers.valkey, stack=stack, peer_env=peer_env, peer=peer)
        eventually(lambda: _has_children(peer), timeout=30)
        yield ready


def _peer_env(valkey: embedded.Valkey) -> dict[str, str]:
    # No DJANGO_SETTINGS_MODULE: Celery would set up Django, and close its connections around every task.
    bare = {
        name: value for name, value in os.environ.items() if not name.startswith(("DJANGO_", "WAKEFUL_", "CELERY_"))
    }
    return {**bare, "BENCH_BROKER": valkey.url.removesuffix("/0") + "/1"}


def _start_peer(home: Path, env: dict[str, str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "celery", "-A", "bench.peer", "worker", "-c", str(CONCURRENCY), "-l", "WARNING"]
    with (home / "peer.log").open("wb") as log:
        return children.spawn([*command, "-n", "peer@%h"], env=env, output=log, cwd=ROOT)


def _has_children(process: subprocess.Popen[bytes]) -> bool:
    return len(children.children_of(process.pid)) >= CONCURRENCY


class Load:
    """A process that makes load: ready when this is made, off at `go`, which returns what it saw."""

    def __init__(self, module: str, arguments: Sequence[object], env: dict[str, str]) -> None:
        command = [sys.executable, "-m", module, *map(str, arguments)]
        self._process = subprocess.Popen(
            command, env=env, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout
        if self._process.stdout.readline() != f"{READY}\n":
            raise RuntimeError(f"{' '.join(command)} ended with {self._process.wait()}")

    def go(self) -> Any:
        said, _ = self._process.communicate("go\n")
        return json.loads(said)


def cpu_seconds(pids: Sequence[int]) -> float:
    """Of these processes and all their descendants, those that have ended among them."""
    total = 0.0
    for pid in pids:
        parent = psutil.Process(pid)
        for process in [parent, *parent.children(recursive=True)]:
            try:
                total += sum(process.cpu_times()[:4])
            except psutil.NoSuchProcess:
                continue
    return total
