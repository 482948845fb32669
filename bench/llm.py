"""What `run.llm` adds to a turn of an LLM agent, and how long its resume takes, beside pydantic-ai's DBOS integration, in turns,
on one PostgreSQL."""

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

from bench.durable import pair
from bench.ground.machine import cpu_model
from bench.ground.measured import Measured
from bench.ground.processes import bare_env
from bench.peers import spread

Say = Callable[[str], None]
ALONE, DBOS, OURS = "pydantic-ai alone", "pydantic-ai with DBOS", "Wakeful"
UNSTEPPED, CAPPED = "DBOS, its tool no step", "Wakeful, under a cap"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How often and how much is measured."""

    repeats: int = 5
    turns: int = 50  # of one run
    resumed_turns: int = 200
    resumes: int = 3  # in one repeat


@dataclass(frozen=True)
class Measurement:
    """Of each way, in each repeat: seconds of a run, and of a resume, which is beside a whole run of pydantic-ai alone."""

    runs: dict[str, list[float]]
    resumes: dict[str, list[float]]

    def added(self, way: str, turns: int) -> list[float]:
        """Seconds that this way adds to a turn."""
        return [(taken - alone) / turns for taken, alone in zip(self.runs[way], self.runs[ALONE], strict=True)]


def section(say: Say, plan: Plan | None = None) -> Iterator[str]:
    """Lines of Markdown."""
    plan = plan or Plan()
    say("llm: starting PostgreSQL, a process of ours, one of DBOS and one of pydantic-ai alone")
    with processes() as by:
        before = os.getloadavg()[0]
        measured = measure(plan, by, say)
    yield f"{cpu_model()} × {os.cpu_count()}, load average {before:.1f} before, {os.getloadavg()[0]:.1f} after;"
    yield f"{plan.repeats} repeats in turns, {plan.turns} turns a run: median (least to most)."
    yield ""
    yield from table(plan, measured)


def measure(plan: Plan, by: dict[str, Measured], say: Say) -> Measurement:
    runs: dict[str, tuple[Measured, tuple[Any, ...]]] = {
        ALONE: (by[ALONE], ("turns", plan.turns)),
        DBOS: (by[DBOS], ("turns", plan.turns, True)),
        OURS: (by[OURS], ("turns", plan.turns, False)),
        UNSTEPPED: (by[DBOS], ("turns", plan.turns, False)),
        CAPPED: (by[OURS], ("turns", plan.turns, True)),
    }
    resumes: dict[str, tuple[Measured, tuple[Any, ...]]] = {
        ALONE: (by[ALONE], ("turns", plan.resumed_turns)),
        DBOS: (by[DBOS], ("resumes", plan.resumed_turns, plan.resumes)),
        OURS: (by[OURS], ("llm_resumes", plan.resumed_turns, plan.resumes)),
    }
    measured = Measurement({way: [] for way in runs}, {way: [] for way in resumes})
    for number in range(plan.repeats + 1):
        say(f"llm: {f'{number} of {plan.repeats}' if number else 'to warm up'}")
        for asked, samples in ((runs, measured.runs), (resumes, measured.resumes)):
            for way, (process, command) in asked.items():
                answer = process.ask(*command)
                if number:
                    samples[way].append(median(answer) if isinstance(answer, list) else answer)
    return measured


def table(plan: Plan, measured: Measurement) -> Iterator[str]:
    alone = [seconds / plan.turns for seconds in measured.runs[ALONE]]
    dbos, ours, unstepped, capped = (measured.added(way, plan.turns) for way in (DBOS, OURS, UNSTEPPED, CAPPED))
    resumed = measured.resumes
    yield f"| ms | {ALONE} | {DBOS} | {OURS} | ours / DBOS |"
    yield "|---|---|---|---|---|"
    yield f"| a turn of pydantic-ai alone | {shown(alone)} | | | |"
    yield f"| added to a turn | | {shown(dbos)} | {shown(ours)} | {ratio(ours, dbos)} |"
    yield f"| added to a turn, under a daily cap of money | | | {shown(capped)} | |"
    yield f"| added to a turn whose tool is no step | | {shown(unstepped)} | | |"
    cells = " | ".join(shown(resumed[way]) for way in (ALONE, DBOS, OURS))
    what = f"{plan.resumed_turns} turns: all of them alone, their resume"
    yield f"| {what} | {cells} | {ratio(resumed[OURS], resumed[DBOS])} |"


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> str:
    return f"{median(ours) / median(theirs):.2f}"


def shown(seconds: Sequence[float]) -> str:
    return spread([each * 1e3 for each in seconds], "{:.2f}")


@contextmanager
def processes() -> Iterator[dict[str, Measured]]:
    with pair(theirs="bench.beside.dbos_llm") as (_, ours, dbos):
        alone = Measured("bench.beside.plain_llm", bare_env())
        try:
            yield {ALONE: alone, DBOS: dbos, OURS: ours}
        finally:
            alone.process.kill()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.llm", description=__doc__)
    parser.add_argument("--repeats", type=int, default=Plan().repeats)
    options = parser.parse_args()
    for line in section(lambda what: print(f"… {what}", file=sys.stderr, flush=True), Plan(repeats=options.repeats)):
        print(line, flush=True)


if __name__ == "__main__":
    main()
