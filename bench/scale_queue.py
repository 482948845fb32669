"""A million queued runs, and a real dispatcher and worker: what the broker holds, how long a claim and an urgent run take."""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import redis

from bench.ground.latency import SEEN
from bench.ground.processes import CONCURRENCY, Load
from bench.rows.scale import BACKOFF, BLOCKED, READY, add_waiting, forget_runs
from tests.support.stack import Stack, eventually

AGENT = "bench.noop"
UNKNOWN = "gone"
BOUND = 2 * CONCURRENCY  # rings a queue may hold in the broker: two for each child
URGENT = 5  # runs
URGENT_FIRST = "UPDATE triggers_trigger SET policy = policy || '{\"priority\": 0}' WHERE agent = 'bench.first_line'"
FINISHED = "SELECT count(*) FROM runs_run WHERE status = 'succeeded'"
PATIENCE = 120.0  # seconds

# What waits, in this order: how many of the million, whose, and how. Behind what cannot be claimed stands what can.
SORTS: dict[str, list[tuple[float, str, dict[str, str]]]] = {
    "ready": [(1, AGENT, READY)],
    "one ready, the others behind its key": [(1, AGENT, BLOCKED)],
    "backoffs due in an hour, then 20,000 ready": [(1, AGENT, BACKOFF), (0.02, AGENT, READY)],
    "ready, of an agent no worker has, then 20,000 of one it has": [(1, UNKNOWN, READY), (0.02, AGENT, READY)],
}


@dataclass(frozen=True, kw_only=True)
class Queued:
    """`calls` as bench.probes.scale sums them up; `rate` in finished runs per second, `urgent` in seconds."""

    what: str
    calls: Mapping[str, Mapping[str, float]]
    most_rings: int
    samples: int
    rate: float
    urgent: list[float]


def measure(stack: Stack, what: str, count: int, *, seconds: float) -> Queued:
    """Fill the queue, probe it alone, then let a dispatcher and a worker drain it for a while."""
    forget_runs(stack.database_url)
    for share, agent, how in SORTS[what]:
        add_waiting(stack.database_url, int(share * count), agent, how)
    # No parent renews the probe's lease.
    calls = Load("bench.probes.scale", ["queue", 40], {**stack.env, "WAKEFUL_LEASE": "1h"}).go()
    stack.query(URGENT_FIRST)
    with draining(stack), rings_counted(stack.redis_url) as rings:
        eventually(lambda: finished(stack), PATIENCE)
        before, began = finished(stack), time.monotonic()
        time.sleep(seconds / 2)
        urgent = urgent_runs(stack)
        time.sleep(max(0.0, began + seconds - time.monotonic()))
        rate = (finished(stack) - before) / (time.monotonic() - began)
    return Queued(what=what, calls=calls, most_rings=max(rings), samples=len(rings), rate=rate, urgent=urgent)


def finished(stack: Stack) -> int:
    return int(stack.query(FINISHED)[0]["count"])


def urgent_runs(stack: Stack) -> list[float]:
    """Seconds from the commit of an event to the first line of the run it starts, which goes before all others."""
    sent = Load("bench.probes.load", ["send", URGENT, 1], stack.env).go()
    seen = eventually(lambda: rows if len(rows := stack.query(SEEN, list(sent))) == URGENT else [], PATIENCE)
    return [row["at"] - sent[row["id"]][1] for row in seen]


@contextmanager
def draining(stack: Stack) -> Iterator[None]:
    processes = [stack.start("dispatcher"), stack.start("worker", concurrency=CONCURRENCY)]
    try:
        yield
    finally:
        for process in processes:
            process.stop()
            stack.processes.remove(process)


@contextmanager
def rings_counted(redis_url: str) -> Iterator[list[int]]:
    """How many rings the broker held, at every moment there was time to look."""
    seen: list[int] = [0]
    stopped = threading.Event()

    def look() -> None:
        with redis.Redis.from_url(redis_url) as broker:
            while not stopped.wait(0.001):
                seen.append(int(broker.llen("runs.default")))

    watch = threading.Thread(target=look)
    watch.start()
    try:
        yield seen
    finally:
        stopped.set()
        watch.join()
