"""What a stack with nothing to do costs."""

import time
from collections import Counter
from dataclasses import dataclass

from bench.ground.processes import Ground, cpu_seconds
from tests.support.statements import statements_of

SETTLE = 90.0  # seconds from the last work to the beginning of the count: a process rests once nothing has moved for a minute


@dataclass(frozen=True, kw_only=True)
class Idle:
    statements_per_second: float
    by_statement: Counter[str]
    cpu: dict[str, float]  # share of one core, by process


def measure_idle(ground: Ground, seconds: float) -> Idle:
    """Of every program: the one that reads sources has no part in the other measurements."""
    ground.stack.start("sources")
    time.sleep(SETTLE)
    with statements_of(ground.postgres) as statements:
        before = cpu_by_process(ground)
        time.sleep(seconds)
        after = cpu_by_process(ground)
    return Idle(
        statements_per_second=statements.total() / seconds,
        by_statement=statements.by_words,
        cpu={name: (after[name] - before[name]) / seconds for name in after},
    )


def cpu_by_process(ground: Ground) -> dict[str, float]:
    """CPU seconds so far, children included."""
    used = {process.kind: cpu_seconds([process.pid]) for process in ground.stack.processes}
    servers = zip(("PostgreSQL", "Valkey"), ground.server_pids, strict=True)
    return used | {name: cpu_seconds([pid]) for name, pid in servers}
