"""Durable runs in one process, as a worker's child claims and executes them; commands from standard input.

The dispatcher's part of a wait is done here too, between claims, and commits as the dispatcher does.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any
from uuid import UUID

import django

django.setup()

from agents import registry  # noqa: E402
from bench.agents import marks  # noqa: E402
from bench.ground.names import MODEL  # noqa: E402
from bench.ground.pace import serve  # noqa: E402
from runs import waits  # noqa: E402
from runs.actions.cancel import cancel  # noqa: E402
from runs.budgets.caps import set_price  # noqa: E402
from runs.chores import timers  # noqa: E402
from runs.claim import Claim, claim_next  # noqa: E402
from runs.db import nudge  # noqa: E402
from runs.db.sql import execute as execute_sql  # noqa: E402
from runs.executor import execute  # noqa: E402
from runs.models import BudgetWindow, Run, Worker  # noqa: E402
from runs.processes import lease  # noqa: E402
from triggers.accept import Incoming, accept, builtin_source  # noqa: E402
from triggers.dispatch.batch import dispatch  # noqa: E402
from triggers.dispatch.rules import Rules  # noqa: E402

QUEUE = "default"

agents = {agent.name: agent.version for agent in registry.all_agents()}
worker = lease.open_row(Worker.Kind.WORKER, concurrency=1, agents=list(agents), queues=[QUEUE])
rules = Rules()


def steps(count: int, inserts: bool) -> float:
    """Seconds per step, from before the first to after the last, within the body."""
    begin("bench.steps", count=count, inserts=inserts)
    execute(claim())
    began, ended = taken()
    require_end(steps=count)
    return (ended - began) / count


def resumes(count: int, times: int, type: str = "bench.resumed") -> list[float]:
    """Seconds of each resume of a run with so many steps in its journal: from before the claim to the end of the journal."""
    begin(type, count=count)
    execute(claim())
    taken()
    seconds = []
    for _ in range(times):
        with as_dispatcher():
            assert timers.wake_due(10) == 1
        began = time.perf_counter()
        execute(claim())
        [reached] = taken()
        seconds.append(reached - began)
    cancel(Run.objects.latest("seq").pk, by="bench")
    return seconds


def turns(count: int, is_capped: bool) -> float:
    """Seconds of a run.llm of so many turns, within the body; `is_capped`: under a cap of money, with a known price."""
    begin("bench.llm_capped" if is_capped else "bench.llm", count=count)
    before = spent()
    execute(claim())
    began, ended = taken()
    require_end(steps=1 + 2 * count + 1)  # the opening, the request and the call of each turn, the last request
    assert (spent() > before) == is_capped
    return ended - began


def llm_resumes(count: int, times: int) -> list[float]:
    """Seconds of each resume of a run with so many turns in its journal: from before the claim to the first new request."""
    return resumes(count, times, "bench.llm_resumed")


def short_sleeps(count: int) -> float:
    """Seconds per sleep of a microsecond, from its call to the line after it."""
    begin("bench.sleeper", count=count, microseconds=1)
    execute(claim())
    passed = taken()
    began = passed[0]
    while len(passed) < 2 * count:  # where the process is slow, the later ones need a claim of their own
        with as_dispatcher():
            waits.end_due(10)
        execute(claim())
        passed = taken()
    require_end(steps=0)
    return (passed[-1] - began) / count


def sleeps(count: int) -> float:
    """Seconds per sleep that releases its process: from its call until the wait is committed, and from the look of the timers that
    ends it to the line after it."""
    begin("bench.sleeper", count=count, microseconds=0)
    return wait_each(count, wake=lambda: waits.end_due(10))


def early(count: int) -> float:
    """Seconds per wait for an event that is there already: its accepting and dispatching, and the way to the line after the wait."""
    begin("bench.listener", count=count, name="early", tells=False)
    began = time.perf_counter()
    for number in range(count):
        answer("early", number)
        with as_dispatcher():
            dispatch(rules)
    passed: list[float] = []
    while len(passed) < 2 * count:  # the later ones may need a claim of their own
        execute(claim())
        passed = taken()
    require_end(steps=0)
    return (passed[-1] - began) / count


def wait_each(count: int, wake: Callable[[], object] = lambda: None) -> float:
    """Seconds per wait of the run that is ready now; the time until it is due is left out."""
    total = 0.0
    execute(claim())
    ended, passed = time.perf_counter(), taken()
    for number in range(count):
        total += ended - passed[-1]  # its call, until the wait is committed and has looked back
        time.sleep(0.001)
        with as_dispatcher():
            began = time.perf_counter()
            wake()
            total += time.perf_counter() - began
        began = time.perf_counter()
        execute(claim())
        ended, passed = time.perf_counter(), taken()
        total += passed[2 * number + 1] - began
    require_end(steps=0)
    return total / count


# What stands around it


def begin(type: str, **data: Any) -> None:
    """A run that is ready, of the agent that wakes on this type."""
    send(type, data)
    with as_dispatcher():
        assert dispatch(rules).dispatched == 1
    marks.clear()


def answer(name: str, number: int) -> None:
    send("bench.answer", {"to": name, "number": number})


def send(type: str, data: dict[str, Any]) -> UUID:
    incoming = Incoming(
        source_id=builtin_source("cli"), ce_source="bench", ce_id=str(time.time_ns()), type=type, data=data
    )
    [accepted] = accept([incoming])
    return accepted.event_id


def claim() -> Claim:
    claimed = claim_next(worker, QUEUE, agents)
    assert claimed
    return claimed


def taken() -> list[float]:
    said = list(marks)
    marks.clear()
    return said


@contextmanager
def as_dispatcher() -> Iterator[None]:
    """Make this process a dispatcher. The switch itself lies outside of what is measured within."""
    execute_sql("SET synchronous_commit = off")
    nudge._is_dispatcher = True
    yield
    nudge._is_dispatcher = False
    execute_sql("SET synchronous_commit = on")


def require_end(steps: int) -> None:
    """The run has succeeded, and its journal is whole."""
    run = Run.objects.latest("seq")
    assert run.status == "succeeded", (run.status, run.status_reason, run.error)
    assert run.steps.count() == steps, run.steps.count()


def spent() -> Decimal:
    """In all windows of budgets."""
    return sum((window.spent for window in BudgetWindow.objects.all()), Decimal(0))


def prepare() -> None:
    execute_sql("CREATE TABLE IF NOT EXISTS bench_row (id bigserial PRIMARY KEY, number int NOT NULL)")
    set_price(model=MODEL, input=Decimal(1), output=Decimal(1), by="bench")


if __name__ == "__main__":
    prepare()
    serve(
        {
            "steps": steps,
            "resumes": resumes,
            "short_sleeps": short_sleeps,
            "sleeps": sleeps,
            "early": early,
            "turns": turns,
            "llm_resumes": llm_resumes,
        }
    )
