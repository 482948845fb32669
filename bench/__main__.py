"""Measure Wakeful beside a raw Celery no-op on the same servers, in turns; about three minutes."""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import TypeVar

from bench.drain import Drain, drain_peer, drain_wakeful
from bench.ground import CONCURRENCY, Ground, ground
from bench.idle import measure_idle
from bench.latency import Latency, latency_of_peer, latency_of_wakeful
from bench.machine import describe

T = TypeVar("T", Drain, Latency)


def main() -> None:
    options = parse()
    say("starting PostgreSQL, Valkey, dispatcher, Beat and a worker, and the peer's worker")
    with ground() as here:
        for line in describe(here):
            print(line)
        print(f"Method    {options.repeats} repeats in turns; median (least to most); one worker -c {CONCURRENCY} each")
        print(f"          drains of {options.count:,} no-ops; {options.pings} single events at {options.rate:g}/s\n")
        for line in table(measure(here, options)):
            print(line)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--count", type=int, default=4000, help="no-ops of one drain")
    parser.add_argument("--pings", type=int, default=100, help="events of one latency measurement")
    parser.add_argument("--rate", type=float, default=10, help="of them a second")
    parser.add_argument("--idle", type=float, default=30, help="seconds of doing nothing")
    return parser.parse_args()


def measure(here: Ground, options: argparse.Namespace) -> Iterator[tuple[str, str, str, str]]:
    """The rows of the table: what, raw Celery, Wakeful, ratio."""
    drain_peer(here, options.count // 4)
    drain_wakeful(here, options.count // 4)
    peer, ours = in_turns(
        "drains", options.repeats, lambda: drain_peer(here, options.count), lambda: drain_wakeful(here, options.count)
    )
    yield row("no-ops drained, per second", peer, ours, lambda drain: drain.rate, "{:,.0f}")
    yield row("CPU per no-op, all processes, ms", peer, ours, lambda drain: drain.cpu * 1e3, "{:.2f}")

    slow_peer, slow = in_turns(
        "single events",
        options.repeats,
        lambda: latency_of_peer(here, options.pings, options.rate),
        lambda: latency_of_wakeful(here, options.pings, options.rate),
    )
    yield row("committed → first line, p50, ms", slow_peer, slow, lambda latency: latency.p50 * 1e3, "{:.1f}")
    yield row("committed → first line, p99, ms", slow_peer, slow, lambda latency: latency.p99 * 1e3, "{:.1f}")
    yield row("call → first line, p50, ms", slow_peer, slow, lambda latency: latency.from_call_p50 * 1e3, "{:.1f}")

    say(f"idle for {options.idle:g} s")
    idle = measure_idle(here, options.idle)
    yield "idle, SQL statements per second", "–", f"{idle.statements_per_second:.2f}", "–"


def in_turns(what: str, repeats: int, peer: Callable[[], T], ours: Callable[[], T]) -> tuple[list[T], list[T]]:
    pairs = []
    for number in range(1, repeats + 1):
        say(f"{what}, {number} of {repeats}")
        pairs.append((peer(), ours()))
    return [first for first, _ in pairs], [second for _, second in pairs]


def row(
    what: str, peer: Sequence[T], ours: Sequence[T], value: Callable[[T], float], form: str
) -> tuple[str, str, str, str]:
    peers, own = [value(one) for one in peer], [value(one) for one in ours]
    return what, spread(peers, form), spread(own, form), f"{median(own) / median(peers):.2f}"


def spread(values: Sequence[float], form: str) -> str:
    middle, least, most = (form.format(value) for value in (median(values), min(values), max(values)))
    return f"{middle} ({least} to {most})"


def table(rows: Iterator[tuple[str, str, str, str]]) -> Iterator[str]:
    yield "| | raw Celery | Wakeful | ratio |"
    yield "|---|---|---|---|"
    for cells in rows:
        yield f"| {' | '.join(cells)} |"


def say(what: str) -> None:
    print(f"… {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
