"""What comes back by itself, and how fast: PostgreSQL restarted and Valkey gone under load, workers and children killed."""

import hmac
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench.ground.own_stack import own_stack
from bench.ground.processes import Load
from bench.probes.recovery import SOURCE
from config.stack import embedded
from tests.support.stack import SHOP, Process, Stack, eventually

SETTINGS = {**SHOP, "WAKEFUL_LOG_LEVEL": "WARNING"}
MAKE_SOURCE = f"""
from triggers.models import Source
from triggers.sources.secrets import rotate
settings = {{"header": "X-Signature", "template": "{{body}}", "id_path": "id", "type_path": "type"}}
print(rotate(Source.objects.create(slug="{SOURCE}", kind="hmac", settings=settings), by="bench"))
"""
RUNS = 3  # of each delivery: effect, effect-b, and chained, which wakes on what effect emits
SHARE = 0.65  # of the capacity
BACK = 0.95  # of the rate before
WINDOW = 5  # seconds over which a rate is judged
KILLS = 5

IDLE = """
SELECT NOT EXISTS (SELECT FROM triggers_event WHERE dispatched_at IS NULL)
   AND NOT EXISTS (SELECT FROM runs_run WHERE status IN ('queued', 'running'))
   AND NOT EXISTS (SELECT FROM runs_outboxmessage) AS idle
"""
FINISHED = """
SELECT extract(epoch FROM finished_at)::float8 AS at FROM runs_run
WHERE status = 'succeeded' AND finished_at >= to_timestamp(%s::float8) ORDER BY finished_at
"""
# Each accepted event and the one that its first run emitted; an effect's table has no unique constraint on purpose.
COUNTED = """
WITH chain AS (
  SELECT accepted.id AS accepted, event.id FROM unnest(%s::uuid[]) AS accepted(id)
  JOIN triggers_event event ON event.id = accepted.id OR event.cause_event_id = accepted.id
), done AS (
  SELECT accepted, (SELECT count(*) FROM runs_processedevent ledger WHERE ledger.event_id = chain.id) AS processed,
    effects.count AS effects, effects.kinds
  FROM chain, LATERAL (SELECT count(*) AS count, count(DISTINCT trigger) AS kinds FROM shop_effect WHERE event = chain.id) effects
), per_delivery AS (
  SELECT sum(processed) AS processed, sum(effects) AS effects, sum(kinds) AS kinds FROM done GROUP BY accepted
)
SELECT count(*) AS found, count(*) FILTER (WHERE processed < 3 OR kinds < 3) AS missing,
       count(*) FILTER (WHERE processed > 3 OR effects > kinds) AS twice FROM per_delivery
"""
RUNNING = "SELECT id, epoch, worker_id, pid FROM runs_run WHERE status = 'running' AND event_ids = ARRAY[%s::uuid]"
CLAIMED_AGAIN = """
SELECT extract(epoch FROM claimed_at)::float8 AS at FROM runs_run
WHERE id = %s AND epoch > %s AND status IN ('running', 'succeeded')
"""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Something that goes away for a while; `come_back` returns once it answers again."""

    name: str
    away: float  # seconds
    go: Callable[[embedded.Servers], None]
    come_back: Callable[[embedded.Servers], None]


@dataclass(frozen=True, kw_only=True)
class Recovery:
    """Rates are finished runs per second; times are seconds since the server answered again."""

    fault: str
    away: float
    baseline: float
    back_after: float | None  # when a WINDOW began that held BACK of the baseline
    rates: dict[int, float]  # beginning of a WINDOW → its rate
    afterwards: float  # from second 30 on
    accepted: int
    sent_again: int
    missing: int
    twice: int


class Shop:
    """A whole Wakeful on servers of its own, a source, and a sender that has its secret."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.secret = stack.manage("shell", "-v0", "-c", MAKE_SOURCE).stdout.strip()

    def deliver(self, id: str, type: str, **data: Any) -> str:
        """The id of the event."""
        body = json.dumps({"id": id, "type": type, **data}).encode()
        headers = {
            "Content-Type": "application/json",
            "X-Signature": hmac.digest(self.secret.encode(), body, "sha256").hex(),
        }
        answer = self.stack.request("POST", f"/hooks/{SOURCE}/", body=body, headers=headers)
        assert answer.status == 202, answer
        return str(answer.json()["event"])

    def load(self, rate: float) -> Load:
        """Deliveries from now on, until its `go` ends them."""
        env = {**self.stack.env, "BENCH_SECRET": self.secret}
        return Load("bench.probes.recovery", [self.stack.port, rate], env)

    def finished_since(self, began: float) -> list[float]:
        return [row["at"] for row in self.stack.query(FINISHED, began)]

    def count(self, accepted: Collection[str]) -> dict[str, int]:
        """Of these events: how many are there, miss an effect, have one twice."""
        return self.stack.query(COUNTED, list(accepted))[0]

    def drain(self, timeout: float = 180) -> None:
        eventually(lambda: self.stack.query(IDLE)[0]["idle"], timeout, every=0.2)


def section(say: Callable[[str], None]) -> Iterator[str]:
    """Every fault under load, then the kills."""
    with own_stack(SETTINGS) as stack:
        shop = Shop(stack.up())
        rate = sustainable(shop, say)
        recoveries = []
        for fault in FAULTS:
            say(f"recovery: {fault.name}, {fault.away:g} s away, {rate:.0f} deliveries a second")
            recoveries.append(recover(shop, fault, rate=rate))
        yield from table(recoveries)
        yield ""
        yield from time_series(recoveries)
        yield ""
        say(f"recovery: {KILLS} children and {KILLS} workers killed")
        yield from kills_table(claims_after_killed_children(shop, KILLS), claims_after_killed_workers(shop, KILLS))


# Load


def sustainable(shop: Shop, say: Callable[[str], None]) -> float:
    """Deliveries a second: SHARE of what the stack gets through when all of it is there."""
    say("recovery: the capacity")
    load = shop.load(rate=10_000)
    time.sleep(3)
    load.go()
    began = time.time()
    shop.drain()
    finished = shop.finished_since(began)
    return max(1.0, SHARE * len(finished) / (finished[-1] - began) / RUNS)


def recover(shop: Shop, fault: Fault, *, rate: float, before: float = 20, after: float = 45) -> Recovery:
    """Load, fault, return, load; then everything that was accepted is counted."""
    servers = shop.stack.servers
    load = shop.load(rate)
    time.sleep(WINDOW)
    began = time.time()
    time.sleep(before)
    gone = time.time()
    fault.go(servers)
    time.sleep(max(0.0, gone + fault.away - time.time()))
    fault.come_back(servers)
    back = time.time()
    time.sleep(after)
    ended = time.time()
    accepted = load.go()
    shop.drain()

    finished = [at - back for at in shop.finished_since(began)]
    baseline = sum(at < gone - back for at in finished) / before
    counted = shop.count(accepted)
    return Recovery(
        fault=fault.name,
        away=back - gone,
        baseline=baseline,
        back_after=next(
            (
                float(second)
                for second in range(int(ended - back) - WINDOW)
                if rate_at(finished, second) >= BACK * baseline
            ),
            None,
        ),
        rates={second: rate_at(finished, second) for second in range(-20, int(ended - back) - WINDOW + 1, WINDOW)},
        afterwards=sum(30 <= at < ended - back for at in finished) / (ended - back - 30),
        accepted=len(accepted),
        sent_again=sum(tries > 1 for tries in accepted.values()),
        missing=len(accepted) - counted["found"] + counted["missing"],
        twice=counted["twice"],
    )


def rate_at(finished: Sequence[float], second: float) -> float:
    return sum(second <= at < second + WINDOW for at in finished) / WINDOW


# Faults


def kill_postgres(servers: embedded.Servers) -> None:
    assert servers.postgres
    servers.postgres.kill()


def stop_postgres(servers: embedded.Servers) -> None:
    assert servers.postgres
    servers.postgres.stop()


def start_postgres(servers: embedded.Servers) -> None:
    assert servers.postgres
    servers.postgres.start()


def kill_valkey(servers: embedded.Servers) -> None:
    assert servers.valkey
    servers.valkey.kill()


def start_empty_valkey(servers: embedded.Servers) -> None:
    assert servers.valkey
    shutil.rmtree(servers.valkey.place / "appendonlydir")
    servers.valkey.start()


POSTGRES_KILLED = Fault(name="PostgreSQL, kill -9", away=3, go=kill_postgres, come_back=start_postgres)
POSTGRES_RESTARTED = Fault(name="PostgreSQL, fast stop, start", away=3, go=stop_postgres, come_back=start_postgres)
VALKEY_GONE = Fault(name="Valkey, kill -9, back empty", away=60, go=kill_valkey, come_back=start_empty_valkey)
FAULTS = (POSTGRES_KILLED, POSTGRES_RESTARTED, VALKEY_GONE)


def claims_after_killed_children(shop: Shop, times: int) -> list[float]:
    """Seconds from the kill of a child to the next claim of what it ran."""
    return [claim_after(shop, lambda run: os.kill(run["pid"], signal.SIGKILL)) for _ in range(times)]


def claims_after_killed_workers(shop: Shop, times: int) -> list[float]:
    """Seconds from the kill of a worker, its children too, to the next claim of what it ran, by the other worker."""
    workers = [process for process in shop.stack.processes if process.kind == "worker"]
    if len(workers) < 2:
        workers.append(shop.stack.start("worker"))

    def kill(run: dict[str, Any]) -> None:
        victim = owner(shop.stack, run, workers)
        victim.kill()

    def once() -> float:
        seconds = claim_after(shop, kill)
        for worker in workers:
            if not worker.is_alive():
                worker.restart()
        return seconds

    return [once() for _ in range(times)]


def owner(stack: Stack, run: dict[str, Any], workers: Sequence[Process]) -> Process:
    [row] = stack.query("SELECT pid FROM runs_worker WHERE id = %s", run["worker_id"])
    return next(worker for worker in workers if worker.pid == row["pid"])


def claim_after(shop: Shop, kill: Callable[[dict[str, Any]], None]) -> float:
    id = f"kill-{time.time_ns()}"
    event = shop.deliver(id, "sleep.a", key=id, seconds=1.5)
    [run] = eventually(lambda: shop.stack.query(RUNNING, event), every=0.01)
    time.sleep(0.5)  # its body is under way
    killed_at = time.time()
    kill(run)
    [again] = eventually(lambda: shop.stack.query(CLAIMED_AGAIN, run["id"], run["epoch"]), 60)
    shop.drain()
    return float(again["at"]) - killed_at


# Words


def table(recoveries: Sequence[Recovery]) -> Iterator[str]:
    columns = (
        "away, s | runs/s before | 95 % of it again after, s | from 30 s on | accepted | sent again | missing | twice"
    )
    yield f"| under load | {columns} |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for one in recoveries:
        back = "never" if one.back_after is None else f"{one.back_after:.0f}"
        yield (
            f"| {one.fault} | {one.away:.0f} | {one.baseline:.1f} | {back} | {one.afterwards / one.baseline:.0%} "
            f"| {one.accepted:,} | {one.sent_again} | {one.missing} | {one.twice} |"
        )


def time_series(recoveries: Sequence[Recovery]) -> Iterator[str]:
    """Runs per second, window by window; 0 is when the server answered again."""
    seconds = sorted(set.intersection(*(set(one.rates) for one in recoveries)))
    yield f"| runs/s in the {WINDOW} s from | {' | '.join(f'{second:+d}' for second in seconds)} |"
    yield f"|---|{'---|' * len(seconds)}"
    for one in recoveries:
        yield f"| {one.fault} | {' | '.join(f'{one.rates[second]:.0f}' for second in seconds)} |"


def kills_table(children: Sequence[float], workers: Sequence[float]) -> Iterator[str]:
    yield "| kill -9 of | times | to the next claim of its run: median, s | most, s |"
    yield "|---|---|---|---|"
    for who, seconds in {"one child": children, "a whole worker": workers}.items():
        yield f"| {who} | {len(seconds)} | {median(seconds):.2f} | {max(seconds):.2f} |"


if __name__ == "__main__":
    for line in section(lambda what: print(f"… {what}", file=sys.stderr, flush=True)):
        print(line, flush=True)
