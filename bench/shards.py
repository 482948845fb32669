"""How far one dispatcher goes by itself, and with shards: events that become runs in a second, by the number of processes that dispatch
parts of its batches. No worker is there, so that nothing but dispatch takes the processors. What limits it is named by the processors' time
of each part: the dispatcher itself, which reads and matches in order, is the part that more shards cannot help."""

import os
from collections.abc import Callable, Iterator

from bench.ground.own_stack import own_stack
from bench.ground.processes import SETTINGS, Load
from bench.hosts import BUSY, DISPATCHED, LEFT, cpu, threads
from tests.support.stack import Process, Stack, eventually

COUNTS = (1, 2, 4, 8)
EVENTS = 10_000
WARM = 2_000
BEGUN = "SELECT count(*) AS n FROM pg_stat_activity WHERE application_name = 'wakeful:dispatcher'"

Say = Callable[[str], None]


def section(say: Say) -> Iterator[str]:
    """Lines of Markdown."""
    yield (
        "| shards | events/s | CPU of the dispatcher itself, µs an event | of its shards | of PostgreSQL | processors in use | limit |"
    )
    yield f"|{'---|' * 7}"
    with own_stack({**SETTINGS, "WAKEFUL_DISPATCH_BATCH": "1000"}) as stack:
        for shards in COUNTS:
            say(f"shards: {shards}")
            dispatcher = stack.start("dispatcher", env={"WAKEFUL_DISPATCH_SHARDS": str(shards)})
            yield max((drained(stack, dispatcher, shards) for _ in range(3)), key=lambda one: one[0])[1]
            dispatcher.stop()


def drained(stack: Stack, dispatcher: Process, shards: int) -> tuple[float, str]:
    """All events are there at one moment; the clock stops when the last is dispatched. The rate, and a line of the table."""
    while True:
        pile(stack, WARM)
        if shards == 1 or stack.query(BEGUN)[0]["n"] > shards:
            break
    postgres = stack.servers.postgres
    assert postgres and postgres.process

    def used() -> tuple[float, float, float]:
        own = threads(dispatcher.pid)
        return own, cpu(dispatcher.pid) - own, cpu(postgres.process.pid)  # type: ignore[union-attr]

    before = used()
    began_at = pile(stack, EVENTS)
    seconds = float(stack.query(DISPATCHED)[0]["at"]) - began_at
    own, beside, database = (after - one for after, one in zip(used(), before, strict=True))
    processors = os.cpu_count() or 1
    limit = "the dispatcher itself" if own >= BUSY * seconds else "each waits for the other"
    if own + beside + database >= BUSY * processors * seconds:
        limit = f"the {processors} processors"
    cells = [
        f"{EVENTS / seconds:,.0f}", *(f"{one / EVENTS * 1e6:.0f}" for one in (own, beside, database)),
        f"{(own + beside + database) / seconds:.2f}", limit,
    ]  # fmt: skip
    return EVENTS / seconds, f"| {shards} | {' | '.join(cells)} |"


def pile(stack: Stack, count: int) -> float:
    """Dispatch so many events; when they were committed."""
    saw = Load("bench.probes.load", ["pile", count, "bench.noop"], stack.env).go()
    eventually(lambda: stack.query(LEFT)[0]["n"] == 0, every=0.2)
    return float(saw["began_at"])
