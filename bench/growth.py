"""Is every leg of a wake as cheap with millions of rows as it was with thousands? An hour or more, mostly of loading."""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import psycopg

from bench.ground.measured import Measured
from bench.ground.own_stack import own_stack
from bench.rows.scale import add_past, bulk
from bench.rows.schedules import Rows
from bench.rows.waits import MIXED, add_waiting
from tests.support.stack import Stack

SETTINGS = {
    "WAKEFUL_APPS": "bench",
    "WAKEFUL_LOG_LEVEL": "WARNING",
    "ALLOWED_HOSTS": "localhost",
    "WAKEFUL_LEASE": "1h",
    "WAKEFUL_MAX_BACKLOG": "1000000",
}
# It comes when it comes; what is compared is taken just after a VACUUM. With a minimal WAL ten millions of rows are written in minutes.
POSTGRES = {
    "autovacuum": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_wal_size": "4GB",
    "checkpoint_timeout": "30min",
}
BOUND = 1.2  # times the cost when there are few
TURNS = 3
UNITS = ("buffers", "cpu_us")

Say = Callable[[str], None]
Legs = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Size:
    runs: int  # finished
    waiting: int
    triggers: int
    schedules: int

    def __str__(self) -> str:
        return f"{self.runs:,} runs, {self.waiting:,} waiting, {self.triggers:,} triggers, {self.schedules:,} schedules"


FEW = Size(10_000, 3_000, 10, 10_000)
SIZES = (FEW, Size(10_000_000, 1_000_000, 10_000, 1_000_000))


def section(say: Say, sizes: Sequence[Size] = SIZES) -> Iterator[str]:
    """Lines of Markdown. Each leg is measured at one size just after the other, in turns: the machine's speed changes within minutes,
    and what has been used costs more than what has just been loaded."""
    with ExitStack() as at_end:
        probes: list[Measured] = []
        for size in sizes:
            say(f"growth: {size}")
            stack = at_end.enter_context(own_stack(SETTINGS, durable=False, postgres=POSTGRES))
            add(stack, size, say)
            probes.append(Measured("bench.probes.growth", stack.env))
            at_end.callback(probes[-1].process.kill)
        for number in range(TURNS):
            say(f"growth: the legs, turn {number + 1} of {TURNS}")
            for size, probe in zip(sizes, probes, strict=True):
                legs = probe.ask("prepare", size.triggers)
            for place, leg in enumerate(legs):
                for probe in probes if (number + place) % 2 else reversed(probes):
                    probe.ask("leg", leg)
        measured = [probe.ask("summaries") for probe in probes]
    for size, of_size in zip(sizes[1:], measured[1:], strict=True):
        yield from table([sizes[0], size], [measured[0], of_size])
        yield ""


def add(stack: Stack, size: Size, say: Say) -> None:
    with psycopg.connect(stack.database_url, autocommit=True) as connection, bulk(connection, say):
        add_past(stack.database_url, size.runs, say)
        add_waiting(stack.database_url, size.waiting, MIXED)
        say("growth: schedules")
        Rows(stack.database_url, "bench").spread(size.schedules)
    with psycopg.connect(stack.database_url, autocommit=True) as connection:
        connection.execute("VACUUM (ANALYZE)")


def table(sizes: Sequence[Size], measured: Sequence[Legs]) -> Iterator[str]:
    few, many = measured[0], measured[-1]
    yield f"{sizes[0]}; then {sizes[-1]}."
    yield ""
    yield "| leg | buffers, few | many | ratio | CPU of PostgreSQL, µs, few | many | ratio |"
    yield "|---|---|---|---|---|---|---|"
    for what in few:
        cells = []
        for unit in UNITS:
            before, after = few[what][unit], many[what][unit]
            ratio = after / max(1.0, before)
            cells += [f"{before:,.0f}", f"{after:,.0f}", f"**{ratio:.2f}**" if ratio > BOUND else f"{ratio:.2f}"]
        yield f"| {what} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description=__doc__)
    parser.add_argument("--runs", type=int, nargs="+", default=[size.runs for size in SIZES[1:]], help="finished runs")
    options = parser.parse_args()
    largest = SIZES[-1]
    sizes = [FEW, *(Size(runs, largest.waiting, largest.triggers, largest.schedules) for runs in options.runs)]
    for line in section(lambda what: print(f"… {what}", file=sys.stderr, flush=True), sizes):
        print(line, flush=True)


if __name__ == "__main__":
    main()
