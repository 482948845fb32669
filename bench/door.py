"""The ways of a webhook into the database, in turns, each in a web process of its own, beside a bare DRF view: through all of Django,
by the shortcut, and several in one transaction; then how long one takes in an open flood."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil

from bench.ground.doors import GRANIAN, deliveries, listens, waits_of
from bench.ground.own_stack import own_stack
from bench.ground.processes import SETTINGS, bare_env, new_database, start
from config.stack import children
from tests.support.stack import ROOT, Stack, eventually, free_port

ROUNDS, DELIVERIES = 3, 3_000
SHARE, SECONDS = 0.8, 10  # of a way's own rate, at which the waits of single deliveries are measured; for so long
ROOM = {"WAKEFUL_MAX_BACKLOG": "1000000", "WAKEFUL_MAX_SOURCE_BACKLOG": "1000000"}  # nothing dispatches meanwhile
NOTED = "UPDATE triggers_event SET dispatched_at = now() WHERE dispatched_at IS NULL RETURNING 1"


@dataclass(frozen=True, kw_only=True)
class Way:
    name: str
    cookie: bool = False  # which leads a delivery through all of Django
    sessions: int = 0  # WAKEFUL_INGEST_SESSIONS


BARE = Way(name="bare DRF view, one INSERT")
WAYS = (
    BARE,
    Way(name="through Django", cookie=True),
    Way(name="by the shortcut"),
    Way(name="together, one session", sessions=1),
    Way(name="together, two sessions", sessions=2),
)


@dataclass(frozen=True, kw_only=True)
class Turn:
    rate: float
    web: float  # seconds of CPU a delivery
    postgres: float
    wal: float


def section(say: Callable[[str], None]) -> Iterator[str]:
    """Lines of Markdown."""
    with ExitStack() as at_end:
        stack = at_end.enter_context(own_stack({**SETTINGS, **ROOM}))
        postgres = stack.servers.postgres
        assert postgres
        env = {**bare_env(), "BENCH_DATABASE": new_database(postgres, "bare")}
        subprocess.run([sys.executable, "-m", "bench.beside.bare_view", "migrate"], env=env, cwd=ROOT, check=True)
        subprocess.run([sys.executable, "-m", "bench.probes.load", "open-door"], env=stack.env, cwd=ROOT, check=True)
        turns: dict[str, list[Turn]] = {way.name: [] for way in WAYS}
        waits: dict[str, Sequence[float]] = {}
        for number in range(1, ROUNDS + 1):
            say(f"door: {number} of {ROUNDS}, load {os.getloadavg()[0]:.1f}")
            for way in WAYS if number % 2 else reversed(WAYS):
                with web(stack, way, env) as (port, pid):
                    deliveries(port, DELIVERIES // 4, cookie=way.cookie)
                    turns[way.name].append(a_turn(stack, way, port, pid))
                    if number == ROUNDS:
                        rate = SHARE * median(turn.rate for turn in turns[way.name])
                        waits[way.name] = waits_of(port, int(rate * SECONDS), rate, cookie=way.cookie)
    bare = median(turn.web + turn.postgres for turn in turns[BARE.name])
    yield "| | per second | CPU of web, ms | of PostgreSQL, ms | per CPU, beside the bare view | WAL, bytes | at 80 %: p50, ms | p99, ms |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, found in turns.items():
        rate, of_web, of_postgres, wal = (
            median(getattr(turn, what) for turn in found) for what in ("rate", "web", "postgres", "wal")
        )
        ratio = bare / median(turn.web + turn.postgres for turn in found)
        slow = sorted(waits[name])
        p50, p99 = (slow[int(len(slow) * share)] * 1e3 for share in (0.5, 0.99))
        cells = (
            f"{rate:,.0f}", f"{of_web * 1e3:.2f}", f"{of_postgres * 1e3:.2f}", f"{ratio:.2f} ×", f"{wal:,.0f}", f"{p50:.1f}", f"{p99:.1f}",
        )  # fmt: skip
        yield f"| {name} | {' | '.join(cells)} |"


@contextmanager
def web(stack: Stack, way: Way, bare: dict[str, str]) -> Iterator[tuple[int, int]]:
    """The port and the pid of a server of its own."""
    port = free_port()
    ours = ["-m", "granian", "--interface", "rsgi", "--backpressure", "4096", "--log-level", "error"]
    command, env = (
        ([*GRANIAN, str(port), "bench.beside.bare_view:application"], bare)
        if way == BARE
        else (
            [*ours, "--port", str(port), "config.rsgi:application"],
            {**stack.env, "WAKEFUL_PORT": str(port), "WAKEFUL_INGEST_SESSIONS": str(way.sessions)},
        )
    )
    server = start(stack.folder, f"web-{port}", command, env)
    try:
        eventually(lambda: listens(port), 60)
        yield port, server.pid
    finally:
        children.kill_group(server)
        stack.query(NOTED)


def a_turn(stack: Stack, way: Way, port: int, pid: int) -> Turn:
    postgres = stack.servers.postgres
    assert postgres
    assert postgres.process
    server, wal, database = cpu(pid), wal_of(stack), cpu(postgres.process.pid)
    rate = deliveries(port, DELIVERIES, cookie=way.cookie)
    return Turn(
        rate=rate,
        web=(cpu(pid) - server) / DELIVERIES,
        postgres=(cpu(postgres.process.pid) - database) / DELIVERIES,
        wal=(wal_of(stack) - wal) / DELIVERIES,
    )


def wal_of(stack: Stack) -> float:
    return float(stack.query("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn AS at")[0]["at"])


def cpu(pid: int) -> float:
    """Seconds of all threads of a process and its children: by the scheduler, which counts what clock ticks miss."""
    parent = psutil.Process(pid)
    threads = [
        thread
        for one in (parent, *parent.children(recursive=True))
        for thread in Path(f"/proc/{one.pid}/task").iterdir()
    ]
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9
