"""The CPU of a run's legs, in one process with one session: Python's process time, and the scheduler's time of the session's process.
Neither counts waiting, so a busy machine changes them little. Prints one JSON object."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import django

django.setup()

from django.db import connection, transaction  # noqa: E402

from agents import registry  # noqa: E402
from runs import tasks  # noqa: E402
from runs.claim import Along, claim_along, claim_next  # noqa: E402
from runs.executor import execute  # noqa: E402
from runs.models import Worker  # noqa: E402
from runs.processes import lease  # noqa: E402
from runs.worker import parent  # noqa: E402
from triggers.accept import Incoming, accept, builtin_source  # noqa: E402
from triggers.dispatch.batch import dispatch  # noqa: E402
from triggers.dispatch.rules import Rules  # noqa: E402

ALONG, ALONE = 1000, 100  # no-ops of a leg
AGENTS = {agent.name: agent.version for agent in registry.all_agents()}
WORKER = lease.open_row(Worker.Kind.WORKER, concurrency=2, agents=list(AGENTS), queues=["default"])
RULES = Rules()


def session_seconds() -> float:
    return int(Path(f"/proc/{connection.connection.info.backend_pid}/schedstat").read_text().split()[0]) / 1e9


def measured(work: Callable[[], object]) -> tuple[float, float]:
    python, session = time.process_time(), session_seconds()
    work()
    return time.process_time() - python, session_seconds() - session


def become_events(count: int) -> None:
    tag, source, data = time.time_ns(), builtin_source("cli"), {"text": "x" * 1000}
    events = [
        Incoming(source_id=source, ce_source="bench", ce_id=f"{tag}-{n}", type="bench.noop", data=data)
        for n in range(count)
    ]
    with transaction.atomic():
        accept(events)


def become_runs() -> None:
    while dispatch(RULES).dispatched:
        pass


def execute_along(count: int) -> None:
    left = count

    def another() -> Along | None:
        nonlocal left
        left -= 1
        return claim_along(WORKER, "default", AGENTS) if left else None

    claim = claim_next(WORKER, "default", AGENTS)
    while claim:
        claim = execute(claim, another)
    assert not left


def legs() -> dict[str, tuple[float, float]]:
    """CPU seconds of Python and of the session, per unit."""
    become_events(ALONG)
    found = {"an event becomes a run, in batches": per(ALONG, measured(become_runs))}
    found["a run succeeds and the next is claimed along"] = per(ALONG, measured(lambda: execute_along(ALONG)))
    dispatched, rung = [], []
    for _ in range(ALONE):
        become_events(1)
        dispatched.append(measured(become_runs))
        rung.append(measured(lambda: tasks.doorbell("default")))
    found["an event becomes a run, alone"] = per(ALONE, *dispatched)
    found["a ring executes the only run"] = per(ALONE, *rung)
    return found


def per(count: int, *found: tuple[float, float]) -> tuple[float, float]:
    python, session = (sum(seconds) / count for seconds in zip(*found, strict=True))
    return python, session


if __name__ == "__main__":
    parent.WORKER_ID = WORKER
    become_events(ALONE)
    become_runs()
    execute_along(ALONE)  # statements are prepared by now
    print(json.dumps(legs()))
