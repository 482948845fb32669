"""What the entries of a durable run's journal are called, whatever keeps it."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from agents.exceptions import Permanent
from agents.journal.protocol import Place


def needs_key(place: Place) -> Permanent:
    return Permanent(f"{place.name!r} runs beside others, so it needs a key of its own: give it key=…")


class Places:
    """The keys one execution of a body asks for; each names one entry, the same on every replay."""

    def __init__(self) -> None:
        self._asked: set[str] = set()
        self._numbers: Counter[str] = Counter()
        self._under_way = 0
        self._thread = threading.get_ident()
        self._lock = threading.Lock()

    @property
    def is_own_thread(self) -> bool:
        """Is this the thread in which the body was begun?"""
        return threading.get_ident() == self._thread

    @contextmanager
    def occupied(self) -> Iterator[None]:
        """While a step is under way: what is asked for meanwhile runs beside it."""
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def ask(self, place: Place, *, inside: str) -> str:
        """The key of an entry, asked for while the step `inside` is under way. Permanent says why it can have none."""
        if inside:
            raise Permanent(
                f"{place.name!r} inside step {inside!r}: a step is done as a whole, so take steps, waits and values "
                "before it or after it, and hand it what it needs"
            )
        with self._lock:
            if not place.key and (self._under_way or not self.is_own_thread):
                raise needs_key(place)
            if place.is_numbered:
                self._numbers[place.name] += 1
                key = f"{place.name}#{self._numbers[place.name]}"
            else:
                key = f"{place.name}:{place.key}" if place.key else place.name
            if key in self._asked:
                raise Permanent(f"{key!r} is used twice in this run: give each its own name, or a key=…")
            self._asked.add(key)
        return key

    def _count(self, number: int) -> None:
        with self._lock:
            self._under_way += number
