"""Ten thousand switches: what they cost while nothing is due, beside as many schedules; how late they open; and what they cost the
dispatch of the events that they wait for."""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from statistics import median

from bench import schedules
from bench.ground.own_stack import own_stack
from bench.schedules import Seen, at_rest, late, per_second
from tests.support.stack import Stack, eventually

COUNT = 10_000
TOGETHER = 1_000  # due at one instant
EVENTS = 10_000
REPEATS = 3
AHEAD = timedelta(seconds=20)  # longer than WAKEFUL_SAFETY_LOOK
PATIENCE = 600.0  # seconds
SETTINGS = {"WAKEFUL_LOG_LEVEL": "WARNING", "WAKEFUL_MAX_BACKLOG": "1000000"}
SWITCHES = """
INSERT INTO triggers_source (id, slug, kind, settings, enabled)
SELECT gen_random_uuid(), 'switch-' || n, 'absence',
  jsonb_build_object('types', 'bench.seen', 'filter', 'event.data.n == ' || n, 'within', '1d'), true
FROM generate_series(1, %s::int) n RETURNING id
"""
ARMED = "SELECT count(*)::int AS count FROM triggers_switchtimer WHERE state = 'waiting'"
# As the time of `within` would have brought it about.
DUE = """
UPDATE triggers_switchtimer SET since = %s::timestamptz - interval '1 day', due_at = %s::timestamptz, look_at = %s::timestamptz
WHERE id IN (SELECT id FROM triggers_switchtimer WHERE state = 'waiting' ORDER BY id LIMIT %s::int) RETURNING id
"""
LATE = """
SELECT extract(epoch FROM received_at - (data->>'due')::timestamptz)::float8 AS late FROM triggers_event
WHERE type = 'absence.opened' AND (data->>'due')::timestamptz = %s::timestamptz
"""
# Each is seen by one switch, or would be by none.
EVENTS_OF = """
INSERT INTO triggers_event (id, source_id, ce_source, ce_id, type, subject, data, headers, body_sha256, data_error, root_id, depth)
SELECT id, source, 'bench', id::text, 'bench.seen', '', jsonb_build_object('n', 1 + n %% %s::int), '{}', '', '', id, 0
FROM (SELECT n, gen_random_uuid() AS id, (SELECT id FROM triggers_source WHERE slug = 'cli') AS source
      FROM generate_series(1, %s::int) n) made RETURNING id
"""
LAST = """
SELECT extract(epoch FROM max(dispatched_at) - min(received_at))::float8 AS seconds,
  bool_and(dispatched_at IS NOT NULL) AS is_over FROM triggers_event WHERE ce_source = 'bench' AND received_at >= %s::timestamptz
"""

Say = Callable[[str], None]


@dataclass(kw_only=True)
class Found:
    """What was measured of switches; seconds."""

    without: Seen
    with_switches: Seen
    armed: float
    together: Sequence[float]
    all_at_once: Sequence[float]
    rate_without: Sequence[float]  # events a second
    rate_with: Sequence[float]


def section(say: Say, count: int = COUNT, idle: float = schedules.IDLE, repeats: int = REPEATS) -> Iterator[str]:
    """Lines of Markdown: beside schedules, then the dispatch of events."""
    with own_stack(SETTINGS) as stack:
        found = of_switches(stack, count, idle, repeats, say)
    with own_stack(schedules.SETTINGS) as stack:
        beside = schedules.of_ours(stack, count, say, seconds=idle)
    yield from table(count, found, beside)
    yield ""
    yield from dispatch_table(count, found)


def of_switches(stack: Stack, count: int, idle: float, repeats: int, say: Say) -> Found:
    dispatcher = stack.start("dispatcher")
    say("absence: without switches")
    without, with_switches = Seen(schedules=0, seconds=idle), Seen(schedules=count, seconds=idle)
    at_rest(stack, dispatcher.pid, without)
    rate_without = [rate(stack, count) for _ in range(repeats + 1)][1:]
    say(f"absence: {count:,} switches")
    began = time.time()
    stack.query(SWITCHES, count)
    stack.query("NOTIFY wakeful_dispatcher")
    eventually(lambda: stack.query(ARMED)[0]["count"] == count, PATIENCE, every=0.2)
    armed = time.time() - began
    stack.query("ANALYZE triggers_source, triggers_switchtimer, triggers_switch")
    at_rest(stack, dispatcher.pid, with_switches)
    rate_with = [rate(stack, count) for _ in range(repeats + 1)][1:]
    say("absence: due at one instant")
    together, all_at_once = opened(stack, min(TOGETHER, count // 2)), opened(stack, count - min(TOGETHER, count // 2))
    return Found(
        without=without,
        with_switches=with_switches,
        armed=armed,
        together=together,
        all_at_once=all_at_once,
        rate_without=rate_without,
        rate_with=rate_with,
    )


def rate(stack: Stack, switches: int) -> float:
    """Events dispatched a second, from their commit to the last of them."""
    [at] = stack.query("SELECT clock_timestamp() AS now")
    stack.query(EVENTS_OF, switches, EVENTS)
    stack.query("NOTIFY wakeful_dispatcher")

    def seconds() -> float:
        [found] = stack.query(LAST, at["now"])
        return float(found["seconds"]) if found["is_over"] else 0.0

    return EVENTS / eventually(seconds, PATIENCE, every=0.2)


def opened(stack: Stack, count: int) -> list[float]:
    """How late each of so many that are due at one instant was, sorted."""
    at = datetime.now(UTC).replace(microsecond=0) + AHEAD
    assert len(stack.query(DUE, at, at, at, count)) == count
    time.sleep(AHEAD.total_seconds())
    eventually(lambda: len(stack.query(LATE, at)) == count, PATIENCE, every=0.5)
    return sorted(row["late"] for row in stack.query(LATE, at))


# Tables


def table(count: int, found: Found, beside: Seen) -> Iterator[str]:
    mine, none = found.with_switches, found.without
    yield f"| | dispatcher, no switch | dispatcher, {count:,} switches | Beat, {count:,} schedules |"
    yield "|---|---|---|---|"
    yield f"| memory of the process (RSS), MB | {none.memory:,.0f} | {mine.memory:,.0f} | {beside.memory:,.0f} |"
    yield f"| idle: CPU of one core | {none.cpu:.2%} | {mine.cpu:.2%} | {beside.cpu:.2%} |"
    yield f"| idle: CPU of PostgreSQL | {none.database_cpu:.2%} | {mine.database_cpu:.2%} | {beside.database_cpu:.2%} |"
    yield f"| idle: statements/s | {per_second(none)} | {per_second(mine)} | {per_second(beside)} |"
    yield (
        f"| {len(found.together):,} due at one instant: an event, ms late, p50, p99, most | – | {late(found.together)} "
        f"| {late(beside.received)} ({len(beside.received):,}) |"
    )
    yield f"| {len(found.all_at_once):,} due at one instant | – | {late(found.all_at_once)} | – |"
    yield f"| first start: every new row read and armed, s | – | {found.armed:.1f} | {beside.armed or 0:.1f} |"


def dispatch_table(count: int, found: Found) -> Iterator[str]:
    without, with_switches = median(found.rate_without), median(found.rate_with)
    yield f"| dispatch of {EVENTS:,} events that no trigger wants | no switch | {count:,} switches wait for this type | ratio |"
    yield "|---|---|---|---|"
    yield (
        f"| events a second; with switches, each is seen by one and moves its timer | {without:,.0f} | {with_switches:,.0f} "
        f"| {with_switches / without:.2f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.absence", description=__doc__)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--idle", type=float, default=schedules.IDLE)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    options = parser.parse_args()
    say = lambda what: print(f"… {what}", file=sys.stderr, flush=True)  # noqa: E731
    for line in section(say, options.count, options.idle, options.repeats):
        print(line, flush=True)


if __name__ == "__main__":
    main()
