"""How the entries of a journal are committed, and how its body is stopped."""

import threading
from collections.abc import Sequence
from typing import NoReturn

from agents.journal.ends import Interrupted, Lost, Parked, Released
from agents.journal.entries import StepEntry
from agents.journal.store import Store
from agents.kernel.effects import Effects


class Commits:
    """Of one journal. What stops the body is its `end`."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.pending: list[StepEntry] = []  # values that are not committed yet
        self.end: Interrupted | None = None  # once set, the body may not go on
        self.lock = threading.RLock()

    def _commit_alone(self, *entries: StepEntry) -> None:
        try:
            is_wanted_back = self._commit(entries, Effects(), at="before_intent_commit")
        except Exception as error:
            self._lost(error)
        self._go_on(is_wanted_back)

    def _commit(self, entries: Sequence[StepEntry], effects: Effects, *, at: str = "before_step_commit") -> bool:
        """Commit the entries together with the pending values."""
        drawn = self._drawn()
        is_wanted_back = self.store.commit([*drawn, *entries], effects, at=at)
        self._is_written([*drawn, *entries])
        return is_wanted_back

    def _drawn(self) -> list[StepEntry]:
        with self.lock:
            return list(self.pending)

    def _is_written(self, entries: Sequence[StepEntry]) -> None:
        written = {entry.key for entry in entries}
        with self.lock:
            self.pending = [entry for entry in self.pending if entry.key not in written]

    # Ends

    def _park(self, reason: str, unproved: str = "") -> NoReturn:
        self._stop(Parked(reason, self.pending, unproved=unproved))

    def park(self, reason: str) -> NoReturn:
        """A person has to resolve the run: its code and its journal do not fit."""
        self._park(reason)

    def _go_on(self, is_wanted_back: bool) -> None:
        if is_wanted_back:
            self._stop(Released("its worker stops, or its agent was stopped, between two steps"))

    def _lost(self, error: Exception) -> NoReturn:
        """The store or the run is gone. The next claim re-reads whatever was committed."""
        self._stop(Lost(error), cause=error)

    def _stop(self, end: Interrupted, cause: Exception | None = None) -> NoReturn:
        with self.lock:
            self.end = self.end or end
        raise self.end from cause
