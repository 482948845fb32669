"""The archive: search of a million events by each field, what its indexes cost, the rate of a replay, export and import."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

from bench.ground.own_stack import own_stack
from bench.ground.processes import Load
from bench.rows.archive import INDEXES, REPLAYED, add_archive, drop_indexes, make_indexes
from tests.support.stack import ROOT, Stack, eventually

EVENTS, FEW = 1_000_000, 100_000
RATE = 100  # a second
MOVED = "order.paid"  # the type of the events that leave and come back
SETTINGS = {
    "WAKEFUL_APPS": "bench",
    "WAKEFUL_LOG_LEVEL": "WARNING",
    "WAKEFUL_MAX_BACKLOG": "1000000",
    "WAKEFUL_MAX_SOURCE_BACKLOG": "1000000",
}
SIZES = """
SELECT relname AS name, pg_relation_size(oid) / 1048576 AS mb FROM pg_class
WHERE relname = 'triggers_event' OR relname = ANY(%s::text[]) ORDER BY relname
"""
AT = "SELECT status, dispatched, extract(epoch FROM clock_timestamp())::float8 AS at FROM triggers_replay"
ONCE = "SELECT count(*) AS runs, count(DISTINCT event_ids) AS events FROM runs_run"
FORGET = "WITH gone AS (DELETE FROM triggers_event WHERE type = %s RETURNING 1) SELECT count(*) FROM gone"
ROUNDS = 3
PATIENCE = 300.0  # seconds

Say = Callable[[str], None]


def section(say: Say) -> Iterator[str]:
    """Lines of Markdown."""
    with own_stack(SETTINGS) as stack:
        say("archive: what accepting and dispatching cost, with the indexes and without")
        add_archive(stack.database_url, FEW, say)
        yield from cost_table(stack)
        yield ""
    with own_stack(SETTINGS) as stack:
        say("archive: searches")
        add_archive(stack.database_url, EVENTS, say)
        yield from search_table(stack)
        yield ""
        say(f"archive: export and import of the type {MOVED}")
        yield from transfer_lines(stack)
        yield ""
        say(f"archive: a replay of {REPLAYED:,} at {RATE} a second")
        yield from replay_lines(stack)


def cost_table(stack: Stack) -> Iterator[str]:
    """The two in turns, since a machine is not always equally fast."""
    costs: dict[str, list[dict[str, float]]] = {"with": [], "without": []}
    for _ in range(ROUNDS):
        for name, found in costs.items():
            (make_indexes if name == "with" else drop_indexes)(stack.database_url)
            found += Load("bench.probes.archive", ["cost"], stack.env).go()
    yield f"| µs per event beside {FEW:,}, the least and the median | without the three indexes | with them |"
    yield "|---|---|---|"
    for what in ("accept", "dispatch"):
        cells = [sorted(each[what] for each in costs[name]) for name in ("without", "with")]
        shown = " | ".join(f"{found[0]:,.0f}, {found[len(found) // 2]:,.0f}" for found in cells)
        yield f"| {what} | {shown} |"


def search_table(stack: Stack) -> Iterator[str]:
    found: dict[str, dict[str, float]] = Load("bench.probes.archive", ["search"], stack.env).go()
    yield f"| search of {EVENTS:,} events | first page, ms | median, ms | slowest, ms |"
    yield "|---|---|---|---|"
    for what, took in found.items():
        yield f"| {what} | {took['first']:.0f} | {took['median']:.0f} | {took['most']:.0f} |"
    yield ""
    sizes = {row["name"]: row["mb"] for row in stack.query(SIZES, list(INDEXES))}
    yield "; ".join(f"`{name}` {size:,} MB" for name, size in sizes.items())


def transfer_lines(stack: Stack) -> Iterator[str]:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "events.ndjson"
        took, memory, _ = measured(stack, "export_events", "--type", MOVED, "--output", str(file))
        count, size = sum(1 for _ in file.open("rb")), file.stat().st_size / 2**20
        yield f"Export: {count:,} events, {size:,.0f} MB, {count / took:,.0f} a second, {memory:.0f} MB of memory."
        stack.query(FORGET, MOVED)
        took, memory, said = measured(stack, "import_events", str(file))
        yield f"Import: {said}; {count / took:,.0f} lines a second, {memory:.0f} MB of memory."


def measured(stack: Stack, *words: str) -> tuple[float, float, str]:
    """Seconds, the most megabytes that the process had, and its output."""
    began, most = time.monotonic(), 0
    process = subprocess.Popen([sys.executable, "manage.py", *words], env=stack.env, cwd=ROOT, stdout=subprocess.PIPE)
    while process.poll() is None:
        try:
            most = max(most, psutil.Process(process.pid).memory_info().rss)
        except psutil.NoSuchProcess:
            break
        time.sleep(0.1)
    said, _ = process.communicate()
    assert process.returncode == 0
    return time.monotonic() - began, most / 2**20, said.decode().strip()


def replay_lines(stack: Stack) -> Iterator[str]:
    stack.start("dispatcher")
    stack.manage("replay", "--type", "bench.noop", "--rate", str(RATE))
    eventually(lambda: at(stack)["dispatched"] > RATE, timeout=PATIENCE)
    first = last = at(stack)
    rates = []
    while (now := at(stack))["dispatched"] < REPLAYED - RATE:
        last = now
        if now["at"] > first["at"] + 10:
            rates.append((now["dispatched"] - first["dispatched"]) / (now["at"] - first["at"]))
        time.sleep(1)
    eventually(lambda: at(stack)["status"] == "done", timeout=PATIENCE)
    rate = (last["dispatched"] - first["dispatched"]) / (last["at"] - first["at"])
    [made] = stack.query(ONCE)
    yield (
        f"Replay of {REPLAYED:,} at {RATE} a second: {rate:.2f} a second ({min(rates):.2f} to {max(rates):.2f} after the first ten"
        f" seconds); {made['runs']:,} runs of {made['events']:,} events."
    )


def at(stack: Stack) -> dict[str, Any]:
    return stack.query(AT)[0]


if __name__ == "__main__":
    for line in section(lambda said: print(f"… {said}", file=sys.stderr, flush=True)):
        print(line, flush=True)
