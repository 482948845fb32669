"""The statements that a server is given, counted by the program that sends them.

pg_stat_statements is not in the wheel. With log_statement = 'all' the server writes down every statement it is given, BEGIN and COMMIT
too, and log_line_prefix names the session.
"""

import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg

from config.stack import embedded

LINE = re.compile(r"^([^|\n]*)\|LOG:  (?:statement|execute [^:]+):\s+(.*(?:\n\t.*)*)", re.MULTILINE)
OFF, ON = {"log_line_prefix": "%m [%p] ", "log_statement": "none"}, {"log_line_prefix": "%a|", "log_statement": "all"}
WORDS = 7


@dataclass
class Statements:
    """By the application_name of their sessions, and by their first words. Filled at the end of the count."""

    by_session: Counter[str] = field(default_factory=Counter)
    by_words: Counter[str] = field(default_factory=Counter)

    def total(self) -> int:
        return self.by_session.total()


@contextmanager
def statements_of(postgres: embedded.Postgres) -> Iterator[Statements]:
    """The statements that the server is given meanwhile."""
    found = Statements()
    _configure(postgres, ON)
    begins_at = postgres.log.stat().st_size
    try:
        yield found
        said = postgres.log.read_bytes()[begins_at:].decode(errors="replace")
        for session, text in LINE.findall(said):
            found.by_session[session] += 1
            found.by_words[" ".join(text.split()[:WORDS])] += 1
    finally:
        _configure(postgres, OFF)


def _configure(postgres: embedded.Postgres, settings: dict[str, str]) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        for name, value in settings.items():
            connection.execute(f"ALTER SYSTEM SET {name} = '{value}'")
        connection.execute("SELECT pg_reload_conf()")
    time.sleep(0.5)  # the sessions take it up one by one
