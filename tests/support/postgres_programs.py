"""Programs of the system that speak PostgreSQL's protocol: a server, a pooler."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg

from config.stack import children
from tests.support.servers import surroundings
from tests.support.stack import eventually


@contextmanager
def serving(words: Sequence[str | Path], url: str, *, log: Path) -> Iterator[str]:
    """The URL, while the program of these words answers at it."""
    with log.open("ab") as output:
        process = children.spawn([*words], env=surroundings(), output=output)
    try:
        eventually(lambda: _answers(url), timeout=60)
        yield url
    finally:
        children.kill_group(process)
        process.wait()


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=5).close()
    except psycopg.OperationalError:
        return False
    return True
