"""How far more hosts help: runs a second by the number of hosts, each a dispatcher and a worker with two children of its own that reach
PostgreSQL and Valkey through a connection of their own; with latency to the database; and how far one dispatcher goes. For no-ops,
and for agents that wait for something outside. What limits it is named by the processors' time and by what sessions wait for.

All hosts, the servers and what adds the latency share the processors of this machine."""

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import psutil
import psycopg

from bench.agents import NAP
from bench.door import wal_of
from bench.ground.own_stack import own_stack
from bench.ground.processes import CONCURRENCY, SETTINGS, Load
from tests.support.hosts import Host, hosts
from tests.support.stack import Stack, eventually

COUNTS = (1, 2, 4, 8)
LATENCIES = (0.001, 0.005)  # seconds
NOOPS, NAPS = 3_000, 40  # of one measurement; NAPS for each host
ALONE = 10_000  # events that one dispatcher matches while no worker is there
BUSY = 0.85  # of a processor, or of all of them: that is the limit then
LOOK_EVERY = 0.02  # seconds
MINE = ("dispatcher", "worker")
DONE = """
SELECT count(*) AS n FROM runs_run run JOIN triggers_event event ON run.event_ids = ARRAY[event.id]
WHERE event.ce_id LIKE %s AND run.status = 'succeeded'
"""
LAST = "SELECT extract(epoch FROM max(finished_at))::float8 AS at FROM runs_run"
DISPATCHED = "SELECT extract(epoch FROM max(dispatched_at))::float8 AS at FROM triggers_event"
LEFT = "SELECT count(*) AS n FROM triggers_event WHERE dispatched_at IS NULL"
# What sessions wait for that execute something, or that hold up others with an open transaction.
WAITS = """
SELECT coalesce(wait_event_type || ': ' || wait_event, 'running') AS what, count(*) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle' GROUP BY 1
"""
LATENCY_OF = "SELECT 1"

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Drain:
    """CPU in processors, on average over the drain."""

    rate: float
    most: float  # runs a second of children that only wait
    postgres: float
    valkey: float
    workers: float
    dispatchers: Sequence[float]
    relay: float
    wal: float  # bytes a run
    waits: Counter[str]

    @property
    def whole(self) -> float:
        return self.postgres + self.valkey + self.workers + sum(self.dispatchers) + self.relay

    @property
    def limit(self) -> str:
        """What limits it."""
        processors = os.cpu_count() or 1
        shares = {"workers": self.workers, "PostgreSQL": self.postgres, "dispatchers": sum(self.dispatchers)}
        if self.whole >= BUSY * processors:
            largest = sorted(shares, key=lambda name: -shares[name])
            return f"the {processors} processors ({', then '.join(largest[:2])})"
        if self.rate >= BUSY * self.most:
            return "the children: all of them wait"
        if max(self.dispatchers) >= BUSY:
            return "one dispatcher's processor"
        waits = [(name, times) for name, times in self.waits.most_common() if name != "running"]
        return f"waiting: {waits[0][0]}" if waits else "waiting"


def section(say: Say) -> Iterator[str]:
    """Lines of Markdown."""
    yield from near(say)
    yield ""
    yield from far(say)


def near(say: Say) -> Iterator[str]:
    """Hosts without latency, then with fewer dispatchers, and one dispatcher by itself."""
    with own_stack(SETTINGS) as stack, ExitStack() as at_end:
        made = at_end.enter_context(hosts(stack, *(f"host-{n}" for n in range(1, max(COUNTS) + 1))))
        for host in made:  # no relay: it would cost as much as what is measured
            host.stack.env |= {name: stack.env[name] for name in ("DATABASE_URL", "REDIS_URL", "CELERY_BROKER_URL")}
        yield from head("hosts")
        for up in growing(made, say):
            warm(stack)
            say(f"hosts: {len(up)}, no-ops")
            yield row(f"{len(up)}", "no-op", best(stack, up, "bench.noop", NOOPS))
            say(f"hosts: {len(up)}, waiting {NAP:g} s")
            yield row(f"{len(up)}", f"waits {NAP:g} s", drain(stack, up, "bench.nap", NAPS * len(up)))
        yield ""
        yield from head("workers (of 2 children) and dispatchers")
        for workers, dispatchers in ((8, 8), (8, 2), (8, 1), (4, 1), (2, 1), (1, 1)):
            keep(made, "dispatcher", dispatchers)
            keep(made, "worker", workers)
            say(f"hosts: {workers} workers, {dispatchers} dispatchers")
            yield row(f"{workers} and {dispatchers}", "no-op", best(stack, made, "bench.noop", NOOPS))
        yield ""
        say("hosts: one dispatcher by itself")
        keep(made, "worker", 0)
        yield from alone(stack, made)


def far(say: Say) -> Iterator[str]:
    """Hosts with latency to PostgreSQL and to Valkey."""
    with own_stack(SETTINGS) as stack, ExitStack() as at_end:
        made = at_end.enter_context(hosts(stack, *(f"host-{n}" for n in range(1, max(COUNTS) + 1))))
        yield from head("hosts, latency")
        for up in growing(made, say):
            for latency in (0.0, *LATENCIES):
                for host in up:
                    host.database.latency = host.broker.latency = latency
                took = round_trip(up[0])
                say(f"hosts: {len(up)}, {latency * 1e3:g} ms")
                if not latency:
                    warm(stack)
                name = f"{len(up)}, {latency * 1e3:g} ms (SELECT 1: {took * 1e3:.1f} ms)"
                yield row(name, "no-op", drain(stack, up, "bench.noop", NOOPS // (2 if latency else 1)))
                yield row(name, f"waits {NAP:g} s", drain(stack, up, "bench.nap", NAPS * len(up)))


def head(first: str) -> Iterator[str]:
    columns = [
        "agent",
        "runs/s",
        "CPU of workers, ms a run",
        "of PostgreSQL",
        "of dispatchers",
        "busiest dispatcher",
        "processors in use",
    ]
    columns += ["of the relay", "WAL, bytes a run", "limit"]
    yield f"| {first} | {' | '.join(columns)} |"
    yield f"|---|{'---|' * len(columns)}"


def row(first: str, agent: str, found: Drain) -> str:
    def ms(processors: float) -> str:
        return f"{processors / found.rate * 1e3:.2f}"

    cells = [
        agent, f"{found.rate:,.0f}", ms(found.workers), ms(found.postgres), ms(sum(found.dispatchers)),
        f"{max(found.dispatchers, default=0):.0%}", f"{found.whole:.2f}", f"{found.relay:.2f}", f"{found.wal:,.0f}", found.limit,
    ]  # fmt: skip
    return f"| {first} | {' | '.join(cells)} |"


def growing(made: Sequence[Host], say: Say) -> Iterator[Sequence[Host]]:
    """The hosts that run, one more group of them after the other."""
    for before, until in pairwise((0, *COUNTS)):
        for host in made[before:until]:
            say(f"hosts: {host.name} starts")
            host.up(*MINE, concurrency=CONCURRENCY)
        yield made[:until]


def keep(made: Sequence[Host], kind: str, most: int) -> None:
    """Stop all but so many processes of a kind, in good order."""
    running = [process for host in made for process in host.processes if process.kind == kind and process.is_alive()]
    for process in running[most:]:
        process.stop()


def warm(stack: Stack) -> None:
    pile(stack, "bench.noop", 300)


def best(stack: Stack, up: Sequence[Host], type: str, count: int) -> Drain:
    """The faster of two."""
    return max((drain(stack, up, type, count) for _ in range(2)), key=lambda one: one.rate)


def drain(stack: Stack, up: Sequence[Host], type: str, count: int) -> Drain:
    """All events are there at one moment; the clock stops with the end of the last run."""
    dispatchers, workers = (
        [process.pid for host in up for process in host.processes if process.kind == kind and process.is_alive()]
        for kind in MINE
    )
    servers = stack.servers
    assert servers.postgres and servers.postgres.process and servers.valkey and servers.valkey.process
    own = [servers.postgres.process.pid, servers.valkey.process.pid, os.getpid()]

    def used() -> dict[int, float]:
        return {pid: threads(pid) if pid == os.getpid() else cpu(pid) for pid in (*own, *dispatchers, *workers)}

    wal, before = wal_of(stack), used()
    with Waiting(stack) as waits:
        seconds = pile(stack, type, count)
    after = used()
    share = {pid: (after[pid] - before[pid]) / seconds for pid in before}
    postgres, valkey, relay = (share[pid] for pid in own)
    return Drain(
        rate=count / seconds,
        most=len(workers) * CONCURRENCY / NAP if type == "bench.nap" else float("inf"),
        postgres=postgres,
        valkey=valkey,
        relay=relay,
        workers=sum(share[pid] for pid in workers),
        dispatchers=[share[pid] for pid in dispatchers],
        wal=(wal_of(stack) - wal) / count,
        waits=waits.seen,
    )


def pile(stack: Stack, type: str, count: int) -> float:
    """The seconds from the commit of so many events until the end of their last run."""
    saw = Load("bench.probes.load", ["pile", count, type], stack.env).go()
    eventually(lambda: stack.query(DONE, f"{saw['tag']}-%")[0]["n"] == count, every=0.2)
    return float(stack.query(LAST)[0]["at"] - saw["began_at"])


def cpu(pid: int) -> float:
    """Seconds of a process and its children that are there now: by the scheduler, which counts what clock ticks miss."""
    parent = psutil.Process(pid)
    return sum(threads(one.pid) for one in (parent, *parent.children(recursive=True)))


def threads(pid: int) -> float:
    """CPU seconds of a process without its children; 0 if it has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        return sum(int((one / "schedstat").read_text().split()[0]) for one in Path(f"/proc/{pid}/task").iterdir()) / 1e9
    return 0.0


class Waiting:
    """What sessions wait for, looked at again and again."""

    def __init__(self, stack: Stack) -> None:
        self.seen: Counter[str] = Counter()
        self._url = stack.database_url
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def _look(self) -> None:
        with psycopg.connect(self._url, autocommit=True) as session:
            while not self._is_over.wait(LOOK_EVERY):
                for what, times in session.execute(WAITS):
                    self.seen[what] += times

    def __enter__(self) -> "Waiting":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over.set()
        self._thread.join()


def alone(stack: Stack, made: Sequence[Host]) -> Iterator[str]:
    """What one dispatcher does in a second while nothing else takes the processors from it."""
    [pid] = [
        process.pid
        for host in made
        for process in host.processes
        if process.kind == "dispatcher" and process.is_alive()
    ]
    postgres = stack.servers.postgres
    assert postgres and postgres.process
    before, of_postgres = cpu(pid), cpu(postgres.process.pid)
    saw = Load("bench.probes.load", ["pile", ALONE, "bench.noop"], stack.env).go()
    eventually(lambda: stack.query(LEFT)[0]["n"] == 0, every=0.2)
    seconds = stack.query(DISPATCHED)[0]["at"] - saw["began_at"]
    own, database = (cpu(pid) - before) / ALONE, (cpu(postgres.process.pid) - of_postgres) / ALONE
    yield (
        f"One dispatcher by itself, without workers: {ALONE:,} events became runs in {seconds:.1f} s, {ALONE / seconds:,.0f} a second, "
        f"with {own * 1e3:.2f} ms of its own CPU and {database * 1e3:.2f} ms of PostgreSQL's for each."
    )


def round_trip(host: Host) -> float:
    """Median seconds of the shortest statement from this host."""
    with psycopg.connect(host.stack.env["DATABASE_URL"], autocommit=True) as session:
        times = []
        for _ in range(21):
            began = time.perf_counter()
            session.execute(LATENCY_OF)
            times.append(time.perf_counter() - began)
    return sorted(times)[10]
