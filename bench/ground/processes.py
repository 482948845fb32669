"""What is measured, as processes: Wakeful and its peers on one embedded PostgreSQL and one embedded Valkey."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import psycopg
import redis

from bench.ground.names import READY
from bench.ground.own_stack import own_stack
from config.stack import children, embedded
from tests.support.stack import ROOT, Stack, eventually

CONCURRENCY = 2
SETTINGS = {"WAKEFUL_APPS": "bench", "WAKEFUL_LOG_LEVEL": "WARNING", "WAKEFUL_MAX_BACKLOG": "1000000"}


@dataclass(frozen=True, kw_only=True)
class Peer:
    """Another way to do work in the background: its processes, and the module that makes load for it."""

    name: str
    load_module: str
    env: dict[str, str]
    processes: list[subprocess.Popen[bytes]]
    is_done: Callable[[], bool] | None = None  # is nothing left to do?

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self.processes]

    def load(self, *arguments: object) -> "Load":
        return Load(self.load_module, arguments, self.env)

    @contextmanager
    def awake(self) -> Iterator[None]:
        """Peers are stopped while others are measured: one that polls would cost them."""
        for process in self._all():
            process.resume()
        try:
            yield
        finally:
            self.sleep()

    def sleep(self) -> None:
        for process in self._all():
            process.suspend()

    def _all(self) -> list[psutil.Process]:
        parents = [psutil.Process(pid) for pid in self.pids]
        return [process for parent in parents for process in (parent, *parent.children(recursive=True))]


@dataclass(frozen=True, kw_only=True)
class Ground:
    """The servers, Wakeful's stack on them and its peers' workers, all of them ready."""

    postgres: embedded.Postgres
    valkey: embedded.Valkey
    stack: Stack
    peers: list[Peer]

    @property
    def peer_store(self) -> "redis.Redis":
        # No time-out of its own: it waits for a drain as long as the bench does.
        return redis.Redis.from_url(_peer_broker(self.valkey), decode_responses=True, socket_timeout=None)

    def wakeful_load(self, *arguments: object) -> "Load":
        return Load("bench.probes.load", arguments, self.stack.env)

    def wakeful_cpu(self) -> float:
        """CPU seconds so far of all that a run needs: dispatcher, worker and both servers."""
        working = [process.pid for process in self.stack.processes if process.kind in ("dispatcher", "worker")]
        return cpu_seconds([*working, *self.server_pids])

    def peer_cpu(self, peer: Peer) -> float:
        return cpu_seconds([*peer.pids, *self.server_pids])

    @property
    def server_pids(self) -> list[int]:
        return [server.process.pid for server in (self.postgres, self.valkey) if server.process]


@contextmanager
def ground(peers: Sequence[str] = ()) -> Iterator[Ground]:
    """Everything in a temporary home of its own, with fsync as in production; all of it is gone afterwards."""
    with ExitStack() as at_end:
        stack = at_end.enter_context(own_stack(SETTINGS))
        postgres, valkey = stack.servers.postgres, stack.servers.valkey
        assert postgres
        assert valkey
        beside = []
        for name in peers:
            peer = START_PEER[name](stack.folder, postgres, valkey)
            for process in peer.processes:
                at_end.callback(children.kill_group, process)
            beside.append(peer)
        for kind in ("web", "dispatcher", "beat", "worker"):
            stack.start(kind, concurrency=CONCURRENCY)
        for peer in beside:
            peer.sleep()
        yield Ground(postgres=postgres, valkey=valkey, stack=stack, peers=beside)


def bare_env() -> dict[str, str]:
    # No DJANGO_SETTINGS_MODULE: Celery would set up Django, and close its connections around every task.
    foreign = ("DJANGO_", "WAKEFUL_", "CELERY_")
    return {name: value for name, value in os.environ.items() if not name.startswith(foreign)}


def new_database(postgres: embedded.Postgres, name: str) -> str:
    """The URL of an empty one."""
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return postgres.url_of(name)


def start(home: Path, name: str, command: Sequence[str], env: dict[str, str]) -> subprocess.Popen[bytes]:
    with (home / f"{name}.log").open("wb") as log:
        return children.spawn([sys.executable, *command], env=env, output=log, cwd=ROOT)


def _peer_broker(valkey: embedded.Valkey) -> str:
    return valkey.url.removesuffix("/0") + "/1"


def _start_celery(home: Path, postgres: embedded.Postgres, valkey: embedded.Valkey) -> Peer:
    env = {**bare_env(), "BENCH_BROKER": _peer_broker(valkey)}
    command = ["-m", "celery", "-A", "bench.beside.celery_app", "worker"]
    options = ["-c", str(CONCURRENCY), "-l", "WARNING", "-n", "peer@%h"]
    worker = start(home, "celery", [*command, *options], env)
    eventually(lambda: len(children.children_of(worker.pid)) >= CONCURRENCY, timeout=30)
    return Peer(name="raw Celery", load_module="bench.beside.celery_load", env=env, processes=[worker])


def _start_procrastinate(home: Path, postgres: embedded.Postgres, valkey: embedded.Valkey) -> Peer:
    url = new_database(postgres, "procrastinate")
    env = {**bare_env(), "BENCH_BROKER": _peer_broker(valkey), "BENCH_DATABASE": url}
    module = "bench.beside.procrastinate_run"
    subprocess.run([sys.executable, "-m", module, "migrate"], env=env, cwd=ROOT, check=True)
    workers = [start(home, f"procrastinate-{n}", ["-m", module, "worker"], env) for n in range(CONCURRENCY)]
    _await_rows(url, "SELECT count(*) = 2 FROM procrastinate_workers")
    left = "SELECT NOT EXISTS (SELECT FROM procrastinate_jobs WHERE status IN ('todo', 'doing'))"
    return Peer(
        name="Procrastinate", load_module=module, env=env, processes=workers, is_done=partial(_is_so, url, left)
    )


def _start_dbos(home: Path, postgres: embedded.Postgres, valkey: embedded.Valkey) -> Peer:
    url = new_database(postgres, "dbos").replace("postgres://", "postgresql+psycopg://")
    env = {**bare_env(), "BENCH_BROKER": _peer_broker(valkey), "BENCH_DATABASE": url}
    module, workers = "bench.beside.dbos_run", []
    for number in range(CONCURRENCY):
        workers.append(start(home, f"dbos-{number}", ["-m", module, "worker", f"executor-{number}"], env))
        # One after the other: each makes the tables it finds missing.
        _await_rows(postgres.url_of("dbos"), "SELECT count(*) = 1 FROM dbos.queues WHERE name = 'bench'")
    left = "SELECT NOT EXISTS (SELECT FROM dbos.workflow_status WHERE status IN ('ENQUEUED', 'PENDING'))"
    done = partial(_is_so, postgres.url_of("dbos"), left)
    return Peer(name="DBOS", load_module=module, env=env, processes=workers, is_done=done)


START_PEER: dict[str, Callable[[Path, embedded.Postgres, embedded.Valkey], Peer]] = {
    "celery": _start_celery,
    "procrastinate": _start_procrastinate,
    "dbos": _start_dbos,
}


def _await_rows(url: str, question: str) -> None:
    def answer() -> bool:
        try:
            return _is_so(url, question)
        except psycopg.Error:
            return False

    eventually(answer, timeout=60)


def _is_so(url: str, question: str) -> bool:
    with psycopg.connect(url) as connection:
        row = connection.execute(question).fetchone()
        return bool(row and row[0])


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
        self.begin()
        return self.end()

    def begin(self) -> None:
        assert self._process.stdin
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def end(self) -> Any:
        said, _ = self._process.communicate()
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
