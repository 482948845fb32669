"""The statements that a stack with nothing to do sends to PostgreSQL."""

import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg

from bench.ground.processes import Ground, cpu_seconds
from config.stack import embedded

# pg_stat_statements is not in the wheel. With log_statement = 'all' the server writes down every statement it is given,
# BEGIN and COMMIT too; only the stack is connected while we count.
STATEMENT = re.compile(r"LOG:  (?:statement|execute [^:]+):\s+(.*)")
SETTLE = 3.0  # seconds from the last work to the beginning of the count


@dataclass(frozen=True, kw_only=True)
class Idle:
    statements_per_second: float
    by_statement: Counter[str]
    cpu: dict[str, float]  # share of one core, by process


def measure_idle(ground: Ground, seconds: float) -> Idle:
    time.sleep(SETTLE)
    with statements_of(ground.postgres) as statements:
        before = cpu_by_process(ground)
        time.sleep(seconds)
        after = cpu_by_process(ground)
    return Idle(
        statements_per_second=statements.total() / seconds,
        by_statement=statements,
        cpu={name: (after[name] - before[name]) / seconds for name in after},
    )


@contextmanager
def statements_of(postgres: embedded.Postgres) -> Iterator[Counter[str]]:
    """The statements that the server receives meanwhile, by their first words; the counter is filled at the end."""
    counter: Counter[str] = Counter()
    log_statements(postgres, "all")
    begins_at = postgres.log.stat().st_size
    try:
        yield counter
        said = postgres.log.read_bytes()[begins_at:].decode(errors="replace")
        counter.update(first_words(text) for text in STATEMENT.findall(said))
    finally:
        log_statements(postgres, "none")


def cpu_by_process(ground: Ground) -> dict[str, float]:
    """CPU seconds so far, children included."""
    used = {process.kind: cpu_seconds([process.pid]) for process in ground.stack.processes}
    servers = zip(("PostgreSQL", "Valkey"), ground.server_pids, strict=True)
    return used | {name: cpu_seconds([pid]) for name, pid in servers}


def log_statements(postgres: embedded.Postgres, which: str) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(f"ALTER SYSTEM SET log_statement = '{which}'")
        connection.execute("SELECT pg_reload_conf()")
    time.sleep(0.5)  # the sessions take it up one by one


def first_words(statement: str) -> str:
    return " ".join(statement.split()[:7])
