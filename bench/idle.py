"""What a stack with nothing to do says to PostgreSQL."""

import re
import time
from collections import Counter
from dataclasses import dataclass

import psycopg

from bench.ground import Ground

# pg_stat_statements is not in the wheel. With log_statement = 'all' the server writes down every statement it is given,
# BEGIN and COMMIT too; nobody but the stack is connected while we count.
STATEMENT = re.compile(r"LOG:  (?:statement|execute [^:]+): (.*)")
SETTLE = 3.0  # seconds from the last work to the beginning of the count


@dataclass(frozen=True, kw_only=True)
class Idle:
    statements_per_second: float
    by_statement: Counter[str]


def measure_idle(ground: Ground, seconds: float) -> Idle:
    time.sleep(SETTLE)
    log_statements(ground, "all")
    begins_at = ground.postgres.log.stat().st_size
    time.sleep(seconds)
    said = ground.postgres.log.read_bytes()[begins_at:].decode(errors="replace")
    log_statements(ground, "none")
    statements = Counter(first_words(text) for text in STATEMENT.findall(said))
    return Idle(statements_per_second=statements.total() / seconds, by_statement=statements)


def log_statements(ground: Ground, which: str) -> None:
    with psycopg.connect(ground.stack.database_url, autocommit=True) as connection:
        connection.execute(f"ALTER SYSTEM SET log_statement = '{which}'")
        connection.execute("SELECT pg_reload_conf()")
    time.sleep(0.5)  # the sessions take it up one by one


def first_words(statement: str) -> str:
    return " ".join(statement.split()[:4])
