"""The keys of the entries in a durable run's journal."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from agents.exceptions import Permanent
from agents.journal.protocol import Place


def needs_key(place: Place) -> Permanent:
    return Permanent(f"{place.name!r} runs beside others, so it needs a key of its own: give it key=…")


class Places:
    """The keys that one execution of a body uses; a key names the same entry on every replay."""

    def __init__(self) -> None:
        self._asked: set[str] = set()
        self._numbers: Counter[str] = Counter()
        self._under_way = 0
        self._thread = threading.get_ident()
        self._lock = threading.Lock()

    @property
    def is_own_thread(self) -> bool:
        """Is this the thread in which the body began?"""
        return threading.get_ident() == self._thread

    @contextmanager
    def occupied(self) -> Iterator[None]:
        """Encloses a running step: entries that are requested meanwhile run in parallel with it."""
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def ask(self, place: Place, *, inside: str) -> str:
        """The key of a requested entry; `inside` is the step that requests it, if any. Permanent: the entry cannot have
        a key.
        """
        if inside:
            raise Permanent(
                f"{place.name!r} inside step {inside!r}: a step cannot contain steps, waits or values. Take them before or "
                "after it, and pass it what it needs"
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

    def forget(self, key: str) -> None:
        """Allow this entry to be requested once more."""
        with self._lock:
            self._asked.discard(key)

    def _count(self, number: int) -> None:
        with self._lock:
            self._under_way += number
