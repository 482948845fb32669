"""A replay of a body: it asks for the recorded entries in their order, by their keys; drawn values and the results of waits."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from agents.exceptions import Permanent
from agents.guards.storable import storable
from agents.journal.begun import current
from agents.journal.canonical import as_read
from agents.journal.commits import Commits
from agents.journal.ends import Interrupted, Waiting
from agents.journal.entries import RESULTS, VALUE, NewWait, RecordedStep, RecordedWait, StepEntry, recorded, sought_by
from agents.journal.keys import Places
from agents.journal.protocol import EXPIRED, ChildrenRequest, Ended, Kind, Place, WaitRequest
from agents.journal.store import Store


class Replay(Commits):
    def __init__(self, store: Store) -> None:
        super().__init__(store)
        entries: Sequence[RecordedStep | RecordedWait] = [*store.steps.values(), *store.waits.values()]
        self.last = self.position = max((entry.position for entry in entries), default=-1)
        # Of recorded entries: the last position, and the last that the body has come to.
        self.recorded_to, self.replayed_to = self.last, -1
        self.unasked = {entry.key: entry.position for entry in entries if store.is_binding and not entry.is_keyed}
        self.places = Places()
        self.made: dict[str, RecordedStep] = {}  # in this process, and perhaps asked for again by their nodes

    @property
    def step_key(self) -> str:
        """The key of the running step; empty outside of steps."""
        step = current.get()
        return step.key if step else ""

    def value(self, place: Place, draw: Callable[[], Any]) -> Any:
        """A drawn value (time, id, random number) as JSON: the one that the first execution drew."""
        return self.named_value(place, draw)[1]

    def named_value(self, place: Place, draw: Callable[[], Any], *, kind: Kind = "step") -> tuple[str, Any]:
        """The entry's key and its drawn value."""
        with self.lock:
            key = self._ask(place)
            return key, self._value(key, bool(place.key), draw, kind)

    def wait(self, request: WaitRequest) -> Any:
        """The result of a wait: the event, an Answer, how each child ended, or None for a time; `EXPIRED` after a timeout."""
        if self.store.in_transaction:
            raise Permanent(f"{request.place.name!r}: a run cannot wait inside transaction.atomic()")
        with self.lock:
            key = self._ask(request.place)
            known = self.store.wait(key, request)
            if self.store.is_binding and key in self.store.steps:
                self._park(f"its journal has {key!r} as a step, but the code asks for a wait")
            if known is None:
                self._expect(key, is_keyed=bool(request.place.key))
            elif tuple(known.sought) != sought_by(request):
                self._park(f"its journal has {key!r} as a wait for something else than the code now asks for")
            if known is None or not known.is_over:
                known = self._answered(key, known, request)
        self.store.recalled(key, "wait")
        came = known.result()
        if isinstance(request, ChildrenRequest) and came is not EXPIRED:
            # Recorded once: a child that is requeued later may end differently.
            with self.lock:
                ends = self._value(f"{RESULTS}{key}", known.is_keyed, known.ends)
            return [Ended(**end) for end in ends]
        return came

    def require_end(self) -> None:
        """Call when the body has returned. Raises if it caught an Interrupted, or left entries of its journal unused."""
        if self.end:
            raise self.end
        with self.lock:
            if left := self._left():
                self._park(f"its journal has {_listed(left)}, but the code ended without asking for it")

    # Entries

    def _made(self, key: str) -> RecordedStep | None:
        pending = next((entry for entry in self.pending if entry.key == key), None)
        return recorded(pending) if pending else self.made.get(key)

    def _is_written(self, entries: Sequence[StepEntry]) -> None:
        super()._is_written(entries)
        for entry in entries:
            if entry.status != "started" and self.places.may_be_asked_again(entry.key):
                self.made[entry.key] = recorded(entry)

    def _ask(self, place: Place) -> str:
        if self.end:
            raise self.end
        key = self.places.ask(place, inside=self.step_key)
        self.unasked.pop(key, None)
        self._replayed(key)
        return key

    def _replayed(self, key: str) -> None:
        if known := self.store.steps.get(key) or self.store.waits.get(key):
            self.replayed_to = max(self.replayed_to, known.position)

    def _next_position(self) -> int:
        self.position += 1
        self.replayed_to = self.recorded_to
        if self.position >= self.store.max_entries:
            raise Permanent(
                f"the journal of this run has {self.position:,} entries, the limit of WAKEFUL_MAX_ENTRIES. Do more in one "
                "step, or end the run and wake again (run.wake_in)"
            )
        return self.position

    def _expect(self, key: str, *, is_keyed: bool) -> None:
        """Park the run if its journal has another entry next. The code may reach entries with a key in any order."""
        if not is_keyed and (left := self._left()):
            self._park(f"its journal has {_listed(left)} next, but the code is at {key!r}")

    def _left(self) -> list[str]:
        return sorted(self.unasked, key=lambda key: self.unasked[key])

    def _value(self, key: str, is_keyed: bool, draw: Callable[[], Any], kind: Kind = "step") -> Any:
        if known := self.store.value(key) or self._made(key):
            self.unasked.pop(key, None)
            self._replayed(key)
            return known.output
        self._expect(key, is_keyed=is_keyed)
        position = self._next_position()
        drawn = storable(self.store.draw(key, draw), key)
        self.pending.append(
            StepEntry(
                key=key, position=position, is_keyed=is_keyed, effect=VALUE, status="done", output=drawn, kind=kind
            )
        )
        return as_read(json.dumps(drawn))

    def _answered(self, key: str, known: RecordedWait | None, request: WaitRequest) -> RecordedWait:
        position = known.position if known else self._next_position()
        wait = NewWait(key=key, position=position, is_new=known is None, request=request)
        answer = self.store.answer(wait)
        if answer is None:
            self._stop(Waiting(wait, self.pending))
        if isinstance(answer, Interrupted):
            self._stop(answer)
        self._commit_alone()
        return answer


def _listed(keys: Sequence[str]) -> str:
    shown = ", ".join(repr(key) for key in keys[:5])
    return shown + (f" and {len(keys) - 5} more" if len(keys) > 5 else "")
