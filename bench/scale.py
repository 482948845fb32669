"""Does it stay as quick as it was? A million queued runs, and millions of finished ones; minutes of loading."""

import sys
from collections.abc import Callable, Iterator, Mapping

from bench.ground.own_stack import own_stack
from bench.ground.processes import Load
from bench.rows.scale import add_past
from bench.scale_queue import BOUND, SORTS, Queued, measure

QUEUED = 1_000_000
SMALL, LARGE = 10_000, 5_000_000
DRAIN = 8.0  # seconds
SETTINGS = {"WAKEFUL_APPS": "bench", "WAKEFUL_LOG_LEVEL": "WARNING", "ALLOWED_HOSTS": "localhost"}

Calls = Mapping[str, Mapping[str, float]]


def section(say: Callable[[str], None]) -> Iterator[str]:
    """Lines of Markdown: the queue, then the growth."""
    yield from queue_table(queued(say))
    yield ""
    yield from growth_table(*(past(size, say) for size in (SMALL, LARGE)))


def queued(say: Callable[[str], None], count: int = QUEUED) -> Iterator[Queued]:
    with own_stack(SETTINGS) as stack:
        for what in SORTS:
            say(f"scale: {count:,} runs queued, {what}")
            yield measure(stack, what, count, seconds=DRAIN)


def past(runs: int, say: Callable[[str], None]) -> Calls:
    """What the product's calls touch, after that many finished runs and a VACUUM."""
    with own_stack({**SETTINGS, "WAKEFUL_LEASE": "1h"}, durable=False) as stack:
        say(f"scale: {runs:,} finished runs")
        # It comes when it comes; what is compared is taken just after a VACUUM.
        stack.query("ALTER SYSTEM SET autovacuum = off")
        stack.query("SELECT pg_reload_conf()")
        add_past(stack.database_url, runs, say)
        say("scale: the calls")
        calls: Calls = Load("bench.probes.scale", ["growth"], stack.env).go()
        return calls


def queue_table(measured: Iterator[Queued]) -> Iterator[str]:
    columns = ["claim, ms: median", "p99", "claim, buffers", "finish, buffers", "relay's look, ms", "timers' look, ms"]
    columns += [f"rings at most (bound {BOUND})", "drained, runs/s", "urgent run, s: median", "most"]
    yield f"| queued | {' | '.join(columns)} |"
    yield f"|---|{'---|' * len(columns)}"
    for one in measured:
        claim, urgent = one.calls["claim"], sorted(one.urgent)
        cells = [
            f"{claim['ms']:.2f}",
            f"{claim['p99_ms']:.2f}",
            f"{claim['buffers']:,.0f}",
            f"{one.calls['finish']['buffers']:,.0f}",
            f"{one.calls['look of the relay']['ms']:.2f}",
            f"{one.calls['look of the timers']['ms']:.2f}",
            f"{one.most_rings} in {one.samples:,} samples",
            f"{one.rate:,.0f}",
            f"{urgent[len(urgent) // 2]:.2f}",
            f"{urgent[-1]:.2f}",
        ]
        yield f"| {one.what} | {' | '.join(cells)} |"


def growth_table(small: Calls, large: Calls) -> Iterator[str]:
    yield f"| buffers touched, median | {SMALL:,} finished | {LARGE:,} | ratio | ms | ms |"
    yield "|---|---|---|---|---|---|"
    for what in small:
        before, after = small[what], large[what]
        ratio = after["buffers"] / max(1, before["buffers"])
        yield (
            f"| {what} | {before['buffers']:,.0f} | {after['buffers']:,.0f} | {ratio:.2f} "
            f"| {before['ms']:.2f} | {after['ms']:.2f} |"
        )


if __name__ == "__main__":
    for line in section(lambda what: print(f"… {what}", file=sys.stderr, flush=True)):
        print(line, flush=True)
