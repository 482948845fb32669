"""A hundred thousand schedules under our Beat and under django-celery-beat's own scheduler; a million under ours."""

import argparse
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import psutil
import redis

from bench.ground.latency import quantile
from bench.ground.own_stack import own_stack
from bench.ground.processes import CONCURRENCY, Load, bare_env, cpu_seconds, new_database, start
from bench.rows.schedules import Rows
from config.stack import children
from tests.support.stack import ROOT, Process, Stack, eventually
from tests.support.statements import statements_of

SMALL, MANY, MOST = 1_000, 100_000, 1_000_000
TOGETHER = 1_000  # due in one second
RATE, STEADY = 200, 60  # fires a second, seconds
IDLE = 60.0  # seconds
AHEAD = timedelta(minutes=3)  # time the peer gets to start and to be watched before its burst
PATIENCE = 1_800.0  # seconds
QUEUE = "bench_fired"
SETTINGS = {"WAKEFUL_APPS": "bench", "WAKEFUL_LOG_LEVEL": "WARNING", "WAKEFUL_MAX_BACKLOG": "1000000"}
SETTLED = "SELECT NOT EXISTS (SELECT FROM triggers_schedule WHERE stale) AS so"
LATE = """
SELECT extract(epoch FROM received_at - (data->>'due')::timestamptz)::float8 AS late
FROM triggers_event WHERE type = 'schedule.fired' AND starts_with(ce_source, %s) AND (data->>'due')::timestamptz >= %s
"""
BEGUN = """
SELECT extract(epoch FROM attempt.started_at - (event.data->>'due')::timestamptz)::float8 AS late
FROM triggers_event event JOIN runs_run run ON run.event_ids = ARRAY[event.id] JOIN runs_attempt attempt ON attempt.run_id = run.id
WHERE event.type = 'schedule.fired' AND starts_with(event.ce_source, %s) AND (event.data->>'due')::timestamptz >= %s
"""

Say = Callable[[str], None]
Calls = Mapping[str, Mapping[str, float]]


@dataclass(kw_only=True)
class Seen:
    """Of one Beat with so many schedules; seconds and megabytes."""

    schedules: int
    armed: float | None = None  # from its first start until it has read every rule
    ready: float = 0.0
    memory: float = 0.0
    cpu: float = 0.0  # share of one core
    database_cpu: float = 0.0
    statements: Counter[str] = field(default_factory=Counter)
    in_broker: Sequence[float] = ()  # from the nominal time, sorted
    received: Sequence[float] = ()
    seconds: float = IDLE


class Broker(threading.Thread):
    """Takes every message of the queue as it comes, and notes when."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.client = redis.Redis.from_url(url, socket_timeout=None)
        self.seen: dict[str, list[float]] = {}
        self.start()

    def run(self) -> None:
        with suppress(redis.ConnectionError):  # it goes when the bench does
            while True:
                taken: Any = self.client.brpop([QUEUE], timeout=0)
                at = time.time()
                name = json.loads(taken[1])["headers"]["periodic_task_name"]
                self.seen.setdefault(name.rpartition("-")[0], []).append(at)

    def count(self, prefix: str) -> int:
        return len(self.seen.get(prefix, ()))


def section(say: Say) -> Iterator[str]:
    """Lines of Markdown: side by side, then ours alone."""
    with own_stack(SETTINGS) as stack:
        theirs = of_the_peer(stack, MANY, say)
        ours = of_ours(stack, MANY, say)
    yield from side_by_side(theirs, ours)
    yield ""
    with own_stack({**SETTINGS, "WAKEFUL_LEASE": "1h"}) as stack:
        few = touched(stack, SMALL, say)
    with own_stack(SETTINGS) as stack:
        most = of_ours(stack, MOST, say)
        received, begun = steady(stack, say)
        yield from alone(most, received, begun)
        yield ""
        stop(stack)
        many = touched(stack, 0, say)
    yield from touched_table(few, many)


# One Beat


def of_the_peer(stack: Stack, count: int, say: Say) -> Seen:
    """Its rows are all there when it starts: what is added later makes it read all of them again."""
    assert stack.servers.postgres
    seen = Seen(schedules=count)
    say(f"schedules: django-celery-beat, {count:,}")
    url = new_database(stack.servers.postgres, "beat_peer")
    broker_url = stack.redis_url.removesuffix("/0") + "/1"
    env = {**bare_env(), "BENCH_DATABASE": url, "BENCH_BROKER": broker_url}
    subprocess.run([sys.executable, "-m", "bench.beside.celery_beat", "migrate"], env=env, cwd=ROOT, check=True)
    rows, broker = Rows(url, QUEUE), Broker(broker_url)
    rows.spread(count)
    rows.overdue("overdue-")
    at = next_minute(AHEAD)
    rows.together("task-", TOGETHER, at)
    rows.vacuum()
    began = time.time()
    schedule = str(stack.folder / "beat-peer")
    beat = start(
        stack.folder,
        "beat-peer",
        ["-m", "celery", "-A", "bench.beside.celery_beat", "beat", "-l", "WARNING", "-s", schedule],
        env,
    )
    try:
        eventually(lambda: broker.count("overdue") or beat.poll() is not None, PATIENCE)
        seen.ready = broker.seen["overdue"][0] - began
        at_rest(stack, beat.pid, seen)
        assert datetime.now(UTC) < at, "it was not ready before its burst; give it more time (AHEAD)"
        eventually(lambda: broker.count("task") == TOGETHER, PATIENCE)
        seen.in_broker = sorted(moment - at.timestamp() for moment in broker.seen["task"])
    finally:
        children.kill_group(beat)
        beat.wait()
    return seen


def of_ours(stack: Stack, count: int, say: Say, seconds: float = IDLE) -> Seen:
    seen = Seen(schedules=count, seconds=seconds)
    say(f"schedules: ours, {count:,}")
    rows, broker = Rows(stack.database_url, QUEUE), Broker(stack.redis_url)
    stack.start("dispatcher")
    rows.spread(count, wakes=True)
    began = time.time()
    beat = stack.start("beat")
    eventually(lambda: settled(stack), PATIENCE, every=0.5)
    seen.armed = time.time() - began
    say(f"schedules: armed after {seen.armed:.0f} s")
    beat.stop()
    rows.overdue("overdue-")
    rows.vacuum()
    began = time.time()
    beat.restart(wait=False)
    eventually(lambda: broker.count("overdue"), PATIENCE)
    seen.ready = broker.seen["overdue"][0] - began
    with frozen([process for process in stack.processes if process is not beat]):
        at_rest(stack, beat.pid, seen)
    seen.in_broker = together(stack, rows, broker, wakes=False)
    seen.received = together(stack, rows, broker, wakes=True)
    return seen


def at_rest(stack: Stack, pid: int, seen: Seen) -> None:
    """Memory, CPU and statements while nothing is due."""
    assert stack.servers.postgres
    assert stack.servers.postgres.process
    time.sleep(5)
    pids = {"beat": pid, "database": stack.servers.postgres.process.pid}
    with statements_of(stack.servers.postgres) as statements:
        before = {name: cpu_seconds([each]) for name, each in pids.items()}
        time.sleep(seen.seconds)
        after = {name: cpu_seconds([each]) for name, each in pids.items()}
    seen.memory = psutil.Process(pid).memory_info().rss / 2**20
    seen.cpu, seen.database_cpu = ((after[name] - before[name]) / seen.seconds for name in pids)
    seen.statements = statements.by_words


def together(stack: Stack, rows: Rows, broker: Broker, *, wakes: bool) -> list[float]:
    """How late each of a thousand of one second was, sorted."""
    prefix = "agent" if wakes else "task"
    at = next_minute(timedelta(seconds=20))
    rows.together(f"{prefix}-", TOGETHER, at, wakes=wakes)
    time.sleep(max(0.0, at.timestamp() - time.time()))
    if not wakes:
        eventually(lambda: broker.count("task") == TOGETHER, PATIENCE)
        return sorted(moment - at.timestamp() for moment in broker.seen["task"])

    def fired() -> list[dict[str, Any]]:
        found = stack.query(LATE, f"{prefix}-", at)
        return found if len(found) == TOGETHER else []

    return sorted(row["late"] for row in eventually(fired, PATIENCE, every=1))


def steady(stack: Stack, say: Say) -> tuple[list[float], list[float]]:
    """How late each of so many fires a second was, and the run of each, with everything running that an installation has."""
    say(f"schedules: {RATE} fires a second")
    rows = Rows(stack.database_url, QUEUE)
    for kind in ("web", "worker"):
        stack.start(kind, concurrency=CONCURRENCY)
    first = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=10)
    rows.steady("steady-", RATE, first)
    since = first + timedelta(seconds=5)  # not the fires of the first seconds, beside their arming
    time.sleep((since - datetime.now(UTC)).total_seconds() + STEADY)
    rows.end("steady-")
    eventually(
        lambda: not stack.query("SELECT 1 FROM runs_run WHERE status IN ('queued', 'running') LIMIT 1"), PATIENCE
    )
    found = [sorted(row["late"] for row in stack.query(query, "steady-", since)) for query in (LATE, BEGUN)]
    assert all(len(each) >= RATE * (STEADY - 1) for each in found), [len(each) for each in found]
    return found[0], found[1]


def touched(stack: Stack, count: int, say: Say) -> Calls:
    """With `count` schedules, or those that are there; a part of them is due at one instant."""
    say("schedules: buffers")
    rows = Rows(stack.database_url, QUEUE)
    if count:
        rows.spread(count - TOGETHER // 2, wakes=True)
    beat = stack.start("beat")
    eventually(lambda: settled(stack), PATIENCE)
    rows.end_others("spread-")  # Beat's own are there by now
    rows.together("probe-", TOGETHER // 2, next_minute(timedelta(hours=1)), wakes=True)
    eventually(lambda: settled(stack), PATIENCE)
    beat.stop()
    stack.query("ALTER SYSTEM SET autovacuum = off")
    stack.query("SELECT pg_reload_conf()")
    rows.vacuum()
    calls: Calls = Load("bench.probes.schedules", [], {**stack.env, "WAKEFUL_LEASE": "1h"}).go()
    return calls


def settled(stack: Stack) -> bool:
    return bool(stack.query(SETTLED)[0]["so"])


@contextmanager
def frozen(processes: Sequence[Process]) -> Iterator[None]:
    for process in processes:
        process.freeze()
    try:
        yield
    finally:
        for process in processes:
            process.thaw()


def stop(stack: Stack) -> None:
    for process in stack.processes:
        process.stop()


def next_minute(ahead: timedelta) -> datetime:
    """The first full one that is at least so far ahead."""
    return (datetime.now(UTC) + ahead).replace(second=0, microsecond=0) + timedelta(minutes=1)


# Tables


def side_by_side(theirs: Seen, ours: Seen) -> Iterator[str]:
    yield f"| {ours.schedules:,} schedules | django-celery-beat | Wakeful |"
    yield "|---|---|---|"
    yield f"| start of the process → an overdue task is in the broker, s | {theirs.ready:.1f} | {ours.ready:.1f} |"
    yield f"| memory of the process (RSS), MB | {theirs.memory:,.0f} | {ours.memory:,.0f} |"
    yield f"| idle: CPU of one core | {theirs.cpu:.2%} | {ours.cpu:.2%} |"
    yield f"| idle: CPU of PostgreSQL | {theirs.database_cpu:.2%} | {ours.database_cpu:.2%} |"
    yield f"| idle: statements/s | {per_second(theirs)} | {per_second(ours)} |"
    yield f"| {TOGETHER:,} of one second: in the broker, ms late, p50 | {ms(theirs.in_broker, 0.5)} | {ms(ours.in_broker, 0.5)} |"
    yield f"| p99 | {ms(theirs.in_broker, 0.99)} | {ms(ours.in_broker, 0.99)} |"
    yield f"| most | {ms(theirs.in_broker, 1)} | {ms(ours.in_broker, 1)} |"
    yield f"| {TOGETHER:,} of one second: an event, ms late, p50, p99, most | – | {late(ours.received)} |"
    yield f"| first start: every new row read and armed, s | – | {ours.armed:.0f} |"


def alone(seen: Seen, received: Sequence[float], begun: Sequence[float]) -> Iterator[str]:
    yield f"| {seen.schedules:,} schedules | Wakeful |"
    yield "|---|---|"
    yield f"| start of the process → an overdue task is in the broker, s | {seen.ready:.1f} |"
    yield f"| memory of the process (RSS), MB | {seen.memory:,.0f} |"
    yield f"| idle: CPU of one core · of PostgreSQL | {seen.cpu:.2%} · {seen.database_cpu:.2%} |"
    yield f"| idle: statements/s | {per_second(seen)} |"
    yield f"| {TOGETHER:,} of one second: in the broker, ms late, p50, p99, most | {late(seen.in_broker)} |"
    yield f"| {TOGETHER:,} of one second: an event, ms late, p50, p99, most | {late(seen.received)} |"
    yield f"| {RATE} fires a second for {STEADY} s: an event, ms late, p50, p99, most | {late(received)} |"
    yield f"| {RATE} fires a second for {STEADY} s: its run begins, ms late, p50, p99, most | {late(begun)} |"
    yield f"| first start: every new row read and armed, s | {seen.armed:.0f} |"


def touched_table(few: Calls, many: Calls) -> Iterator[str]:
    yield f"| buffers touched, median | {SMALL:,} schedules | {MOST:,} | ratio |"
    yield "|---|---|---|---|"
    for what in few:
        before, after = few[what]["buffers"], many[what]["buffers"]
        yield f"| {what} | {before:,.0f} | {after:,.0f} | {after / max(1, before):.2f} |"


def per_second(seen: Seen) -> str:
    return f"{seen.statements.total() / seen.seconds:.2f}"


def late(seconds: Sequence[float]) -> str:
    return ", ".join(ms(seconds, share) for share in (0.5, 0.99, 1))


def ms(seconds: Sequence[float], share: float) -> str:
    return f"{quantile(seconds, share) * 1e3:,.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.schedules", description=__doc__)
    parser.parse_args()
    for line in section(lambda what: print(f"… {what}", file=sys.stderr, flush=True)):
        print(line, flush=True)


if __name__ == "__main__":
    main()
