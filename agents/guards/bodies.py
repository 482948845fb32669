"""The bodies of runs that execute in this process."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_bodies = 0  # threads that a body starts belong to it
_lock = threading.Lock()


@contextmanager
def counted() -> Iterator[None]:
    """While a body executes."""
    _count(1)
    try:
        yield
    finally:
        _count(-1)


def is_within_body() -> bool:
    return _bodies > 0


def _count(number: int) -> None:
    global _bodies
    with _lock:
        _bodies += number
