"""What a durable step, a wait and a resume cost, beside DBOS Transact, in turns, on one PostgreSQL."""

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from bench.ground.machine import cpu_model
from bench.ground.measured import Measured
from bench.ground.own_stack import own_stack
from bench.ground.processes import Load, bare_env, new_database
from bench.peers import spread
from tests.support.stack import Stack, eventually

# No parent renews the lease of a process that only stands for a worker's child.
SETTINGS = {
    "WAKEFUL_APPS": "bench",
    "WAKEFUL_LOG_LEVEL": "WARNING",
    "WAKEFUL_LEASE": "1h",
    "ALLOWED_HOSTS": "localhost",
}
DBOS_POOL = "postgresql+psycopg://"

Say = Callable[[str], None]
Samples = dict[str, dict[str, list[float]]]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How often and how much is measured."""

    repeats: int = 7
    steps: int = 100  # of one run
    waits: int = 20  # of one run
    pings: int = 20  # of one run
    resumes: Mapping[int, int] = field(default_factory=lambda: {10: 3, 100: 3, 1000: 1})  # steps → in one repeat


def section(say: Say, plan: Plan | None = None) -> Iterator[str]:
    """Lines of Markdown."""
    plan = plan or Plan()
    say("durable: starting PostgreSQL, a process of ours and one of DBOS")
    with pair() as (stack, ours, theirs):
        samples = measure(plan, ours, theirs, say)
        latencies = first_lines(plan, stack, ours, theirs, say)
    yield from table(plan, samples, latencies)


def measure(plan: Plan, ours: Measured, theirs: Measured, say: Say) -> Samples:
    asked: dict[str, tuple[Any, ...]] = {
        "step that does nothing": ("steps", plan.steps, False),
        "step with one INSERT": ("steps", plan.steps, True),
        "sleep of a microsecond": ("short_sleeps", plan.waits),
        "sleep that releases its process": ("sleeps", plan.waits),
        "event that is there already": ("early", plan.waits),
        **{f"resume, {count:,} steps": ("resumes", count, times) for count, times in plan.resumes.items()},
    }
    samples: Samples = {what: {"ours": [], "theirs": []} for what in asked}
    for number in range(plan.repeats + 1):
        say(f"durable: {f'{number} of {plan.repeats}' if number else 'to warm up'}")
        for what, command in asked.items():
            for name, process in (("ours", ours), ("theirs", theirs)):
                answer = process.ask(*command)
                if number:
                    samples[what][name].append(median(answer) if isinstance(answer, list) else answer)
    return samples


def first_lines(plan: Plan, stack: Stack, ours: Measured, theirs: Measured, say: Say) -> dict[str, list[float]]:
    """Seconds from sending what a run waits for to the line after the wait: ours by a dispatcher, the broker and a worker."""
    ours.sleep()
    found: dict[str, list[float]] = {"ours": [], "theirs": []}
    stack.start("dispatcher")
    stack.start("worker", concurrency=2)
    for number in range(plan.repeats + 1):
        say(f"durable: what is waited for comes, {f'{number} of {plan.repeats}' if number else 'to warm up'}")
        by_us = median(answered(stack, plan.pings))
        by_them = median(theirs.ask("late", plan.pings))
        if number:
            found["ours"].append(by_us)
            found["theirs"].append(by_them)
    return found


def answered(stack: Stack, count: int) -> list[float]:
    said = Load("bench.probes.load", ["answer", count], {**stack.env, "WAKEFUL_LEASE": "8s"}).go()

    def seen() -> list[float]:
        query = "SELECT run.result FROM runs_run run WHERE run.event_ids = ARRAY[%s::uuid] AND status = 'succeeded'"
        rows = stack.query(query, said["event"])
        return rows[0]["result"] if rows else []

    return [at - sent for at, sent in zip(eventually(seen, 30), said["sent"], strict=True)]


def table(plan: Plan, samples: Samples, latencies: dict[str, list[float]]) -> Iterator[str]:
    yield f"{cpu_model()} × {os.cpu_count()}, load average {os.getloadavg()[0]:.1f}; {plan.repeats} repeats in turns."
    yield ""
    yield "| ms | DBOS | Wakeful | ours / DBOS |"
    yield "|---|---|---|---|"
    rows = {**samples, "event sent → line after the wait": latencies}
    for what, by in rows.items():
        cells = [spread([value * 1e3 for value in by[name]], "{:.2f}") for name in ("theirs", "ours")]
        yield f"| {what} | {' | '.join(cells)} | {median(by['ours']) / median(by['theirs']):.2f} |"
    yield ""
    few, many = min(plan.resumes), max(plan.resumes)
    least, most = (median(samples[f"resume, {count:,} steps"]["ours"]) for count in (few, many))
    each = (most - least) / max(1, many - few)
    yield f"Our resume: {(least - each * few) * 1e3:.1f} ms, and {each * 1e6:.0f} µs for each step."


# Processes


@contextmanager
def pair(*, theirs: str = "bench.beside.dbos_durable") -> Iterator[tuple[Stack, Measured, Measured]]:
    """Our process, and one of DBOS that runs this module."""
    with ExitStack() as at_end:
        stack = at_end.enter_context(own_stack(SETTINGS))
        assert stack.servers.postgres
        url = new_database(stack.servers.postgres, "dbos").replace("postgres://", DBOS_POOL)
        ours = Measured("bench.probes.durable", stack.env)
        at_end.callback(ours.process.kill)
        dbos = Measured(theirs, {**bare_env(), "BENCH_DATABASE": url})
        at_end.callback(dbos.process.kill)
        yield stack, ours, dbos


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.durable", description=__doc__)
    parser.add_argument("--repeats", type=int, default=Plan().repeats)
    options = parser.parse_args()
    for line in section(lambda what: print(f"… {what}", file=sys.stderr, flush=True), Plan(repeats=options.repeats)):
        print(line, flush=True)


if __name__ == "__main__":
    main()
