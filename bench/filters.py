"""What filters cost the dispatch of an event: ten thousand triggers that cannot match, and hostile filters with hostile payloads."""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from statistics import median

from bench.ground.latency import quantile
from bench.ground.own_stack import own_stack
from bench.ground.processes import Load
from tests.support.stack import Stack, eventually

FEW, MANY = 10, 10_000
EVENTS, RATE = 300, 20.0
HOSTILE_EVERY = 2.0  # seconds
ROUNDS = 2
# Expressions read payloads of 32 MiB here: as shipped, those above 1 MiB are read by none, which costs less.
SETTINGS = {"WAKEFUL_APPS": "bench", "WAKEFUL_LOG_LEVEL": "WARNING", "WAKEFUL_MAX_MATCH": str(32 * 2**20)}
TOOK = """
SELECT extract(epoch FROM run.created_at - event.received_at)::float8 * 1000 AS ms
FROM triggers_event event JOIN runs_run run ON run.event_ids = ARRAY[event.id]
WHERE event.id = ANY(%s::uuid[]) AND run.trigger = %s
"""
LEFT = "SELECT count(*) AS count FROM triggers_event WHERE dispatched_at IS NULL"

Say = Callable[[str], None]
Times = Sequence[float]


def section(say: Say, rounds: int = ROUNDS) -> Iterator[str]:
    """Lines of Markdown: many triggers, then hostile ones."""
    with own_stack(SETTINGS) as stack:
        stack.start("dispatcher")
        yield from many_table(many(stack, rounds, say))
        yield ""
        yield from hostile_table(hostile(stack, rounds, say))


def many(stack: Stack, rounds: int, say: Say) -> dict[int, list[Times]]:
    found: dict[int, list[Times]] = {FEW: [], MANY: []}
    for number in range(rounds):
        for count in (FEW, MANY):
            say(f"filters: {count:,} triggers, round {number + 1} of {rounds}")
            probe(stack, "triggers", count)
            ordinary(stack, 20)  # the dispatcher reads the triggers
            found[count].append(took(stack, ordinary(stack, EVENTS), "plain"))
    return found


def hostile(stack: Stack, rounds: int, say: Say) -> dict[str, dict[str, list[Times]]]:
    """By what is sent beside, and trigger: milliseconds until the run is there."""
    found: dict[str, dict[str, list[Times]]] = {
        beside: {"plain": [], "regular expression": []} for beside in ("nothing", "hostile events")
    }
    for number in range(rounds):
        for beside, each in found.items():
            say(f"filters: beside {beside}, round {number + 1} of {rounds}")
            probe(stack, "hostility", int(beside != "nothing"))
            ordinary(stack, 20)
            load = Load("bench.probes.filters", ["ordinary", EVENTS, RATE], stack.env)
            others = None
            if beside != "nothing":
                others = Load(
                    "bench.probes.filters",
                    ["hostile", int(EVENTS / RATE / HOSTILE_EVERY), 1 / HOSTILE_EVERY],
                    stack.env,
                )
                others.begin()
            sent = load.go()
            if others:
                others.end()
            for trigger, times in each.items():
                times.append(took(stack, sent, trigger.replace(" ", "-")))
            eventually(lambda: stack.query(LEFT)[0]["count"] == 0, 300)
    return found


def probe(stack: Stack, *arguments: object) -> None:
    Load("bench.probes.filters", arguments, stack.env).go()


def ordinary(stack: Stack, count: int) -> list[str]:
    sent: list[str] = Load("bench.probes.filters", ["ordinary", count, RATE], stack.env).go()
    return sent


def took(stack: Stack, sent: Sequence[str], trigger: str) -> Times:
    def all_there() -> Times:
        rows = stack.query(TOOK, list(sent), trigger)
        return sorted(row["ms"] for row in rows) if len(rows) == len(sent) else []

    return eventually(all_there, 120)


def many_table(found: dict[int, list[Times]]) -> Iterator[str]:
    yield "| event → run, ms | p50 | p99 |"
    yield "|---|---|---|"
    for count, rounds in found.items():
        yield f"| {count:,} triggers | {median(map(median, rounds)):.1f} | {worst(rounds, 0.99):.1f} |"
    few, more = (median(map(median, found[count])) for count in (FEW, MANY))
    yield f"| ratio | {more / few:.2f} | {worst(found[MANY], 0.99) / worst(found[FEW], 0.99):.2f} |"


def hostile_table(found: dict[str, dict[str, list[Times]]]) -> Iterator[str]:
    yield "| event → run, ms, beside | trigger | p50 | p99 | most |"
    yield "|---|---|---|---|---|"
    for beside, triggers in found.items():
        for trigger, rounds in triggers.items():
            most = max(map(max, rounds))
            yield f"| {beside} | {trigger} | {median(map(median, rounds)):.1f} | {worst(rounds, 0.99):.1f} | {most:.1f} |"


def worst(rounds: Sequence[Times], share: float) -> float:
    return max(quantile(times, share) for times in rounds)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.filters", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    for line in section(lambda what: print(f"… {what}", file=sys.stderr, flush=True), options.rounds):
        print(line, flush=True)


if __name__ == "__main__":
    main()
