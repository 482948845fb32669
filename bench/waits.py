"""What waiting runs cost those that do not wait, and how fast many go on that are woken at one instant."""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from statistics import median

from bench.ground.own_stack import own_stack
from bench.ground.processes import CONCURRENCY, Load
from bench.peers import spread
from bench.rows.waits import AT_ONE_INSTANT, FOR_ONE_EVENT, MIXED, READY, add_waiting, vacuum_database
from tests.support.stack import Stack, eventually

SMALL, LARGE = 1_000, 100_000
WOKEN = 10_000
REPEATS = 3
PATIENCE = 300.0  # seconds
AHEAD = 5.0  # seconds, in which the rows of an instant are written
SETTINGS = {"WAKEFUL_APPS": "bench", "WAKEFUL_LOG_LEVEL": "WARNING", "ALLOWED_HOSTS": "localhost"}
LAST = "SELECT extract(epoch FROM max(finished_at))::float8 AS at, count(*) AS runs FROM runs_run WHERE finished_at > to_timestamp(%s)"

Say = Callable[[str], None]
Calls = Mapping[str, Mapping[str, float]]


def section(say: Say, repeats: int = REPEATS) -> Iterator[str]:
    """Lines of Markdown: what calls touch, then the rates."""
    with own_stack(SETTINGS) as stack:
        say(f"waits: {SMALL:,} runs wait")
        few = touched(stack, SMALL, after=0)
        say(f"waits: {LARGE:,}")
        many = touched(stack, LARGE - SMALL, after=3 * SMALL)
        yield from touched_table(few, many)
        yield ""
        yield from rate_table(rates(stack, repeats, say))


def touched(stack: Stack, more: int, after: int) -> Calls:
    add_waiting(stack.database_url, more, MIXED, after=after)
    vacuum_database(stack.database_url)
    calls: Calls = Load("bench.probes.waits", [after + 1], {**stack.env, "WAKEFUL_LEASE": "1h"}).go()
    return calls


def rates(stack: Stack, repeats: int, say: Say) -> dict[str, list[float]]:
    """Runs a second, from the instant to the end of the last."""
    found: dict[str, list[float]] = {"ready at once": [], "woken by time": [], "woken by one event": []}
    stack.start("dispatcher")
    stack.start("worker", concurrency=CONCURRENCY)
    for number in range(repeats + 1):
        say(f"waits: {WOKEN:,} at one instant, {f'{number} of {repeats}' if number else 'to warm up'}")
        for what, begin in (("ready at once", ready), ("woken by time", by_time), ("woken by one event", by_event)):
            rate = drained(stack, begin(stack))
            if number:
                found[what].append(rate)
    return found


def ready(stack: Stack) -> float:
    return add_waiting(stack.database_url, WOKEN, READY)


def by_time(stack: Stack) -> float:
    instant = datetime.now(UTC) + timedelta(seconds=AHEAD)
    assert add_waiting(stack.database_url, WOKEN, AT_ONE_INSTANT, instant=instant) < instant.timestamp()
    time.sleep(max(0.0, instant.timestamp() - time.time()))
    return instant.timestamp()


def by_event(stack: Stack) -> float:
    add_waiting(stack.database_url, WOKEN, FOR_ONE_EVENT)
    return float(Load("bench.probes.load", ["wake", -1], stack.env).go()["sent"])


def drained(stack: Stack, began: float) -> float:
    def last() -> float:
        [done] = stack.query(LAST, began)
        return float(done["at"]) if done["runs"] >= WOKEN else 0.0

    return WOKEN / (eventually(last, PATIENCE, every=0.5) - began)


def touched_table(few: Calls, many: Calls) -> Iterator[str]:
    yield f"| buffers touched, median | {SMALL:,} wait | {LARGE:,} wait | ratio | ms | ms |"
    yield "|---|---|---|---|---|---|"
    for what in few:
        before, after = few[what], many[what]
        ratio = after["buffers"] / max(1, before["buffers"])
        yield (
            f"| {what} | {before['buffers']:,.0f} | {after['buffers']:,.0f} | {ratio:.2f} "
            f"| {before['ms']:.2f} | {after['ms']:.2f} |"
        )


def rate_table(found: dict[str, list[float]]) -> Iterator[str]:
    yield f"| {WOKEN:,} runs | a second | of the rate of ready ones |"
    yield "|---|---|---|"
    for what, each in found.items():
        yield f"| {what} | {spread(each, '{:,.0f}')} | {median(each) / median(found['ready at once']):.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.waits", description=__doc__)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    options = parser.parse_args()
    for line in section(lambda what: print(f"… {what}", file=sys.stderr, flush=True), options.repeats):
        print(line, flush=True)


if __name__ == "__main__":
    main()
