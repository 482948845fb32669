"""The keys of the entries in a durable run's journal."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from agents.exceptions import Permanent
from agents.journal.protocol import Place


def needs_key(place: Place) -> Permanent:
    return Permanent(
        f"{place.name!r} runs beside others, or in a node of a graph, so it needs a key of its own: give it key=…"
    )


@dataclass(frozen=True, eq=False)
class Execution:
    """One execution of a node of a graph. `task` and `attempt` are not both those of another execution of the node."""

    node: str
    task: object
    attempt: int

    def is_same(self, other: "Execution") -> bool:
        return self.task is other.task and self.attempt == other.attempt

    def is_again(self, other: "Execution | None") -> bool:
        """Is this a later execution of the same node?"""
        return other is not None and self.node == other.node and not self.is_same(other)


# Gives the execution of a node that runs in this thread or task; None: there is no node, or what runs is not its code.
node_here: ContextVar[Callable[[], Execution | None] | None] = ContextVar("node_here", default=None)


@contextmanager
def outside_of_nodes() -> Iterator[None]:
    """What is requested within is numbered by its graph, which requests it once."""
    token = node_here.set(None)
    try:
        yield
    finally:
        node_here.reset(token)


def _execution() -> Execution | None:
    look = node_here.get()
    return look() if look else None


class Places:
    """The keys that one execution of a body uses; a key names the same entry on every replay."""

    def __init__(self) -> None:
        self._asked: dict[str, Execution | None] = {}  # by which execution of a node
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
        execution = _execution()
        with self._lock:
            if not place.key and (execution or self._under_way or not self.is_own_thread):
                raise needs_key(place)
            if place.is_numbered:
                self._numbers[place.name] += 1
                key = f"{place.name}#{self._numbers[place.name]}"
            else:
                key = f"{place.name}:{place.key}" if place.key else place.name
            if key in self._asked and not (execution and execution.is_again(self._asked[key])):
                raise Permanent(f"{key!r} is used twice in this run: give each its own name, or a key=…")
            self._asked[key] = execution
        return key

    def may_be_asked_again(self, key: str) -> bool:
        """Has a node asked for this entry, so that a later execution of the node will?"""
        return self._asked.get(key) is not None

    def forget(self, key: str) -> None:
        """Allow this entry to be requested once more."""
        with self._lock:
            self._asked.pop(key, None)

    def _count(self, number: int) -> None:
        with self._lock:
            self._under_way += number
