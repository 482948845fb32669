"""The engine of durable bodies: what a body does once is written down in a store, and a replay of the body is given what is
written there.

A transactional step's writes and its entry are one commit. Any other is called first and written down then; one that may
happen at most once has its intent committed before. Whatever ends the body for now is an Interrupted, after which this
journal gives nothing more.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NoReturn

from agents.effects import Effects
from agents.exceptions import Permanent, Retry, StepFailed, describe, is_permanent
from agents.guards.network import network_refused
from agents.guards.storable import shown, storable
from agents.journal.canonical import as_read
from agents.journal.ends import Interrupted, Lost, Parked, Released, TriedAgain, Waiting
from agents.journal.entries import (
    RESULTS,
    VALUE,
    NewWait,
    RecordedStep,
    RecordedWait,
    Status,
    StepEntry,
    sought_by,
)
from agents.journal.keys import Places
from agents.journal.protocol import EXPIRED, BudgetWish, ChildrenWish, Ended, Kind, Place, StepWish, WaitWish, fitting
from agents.journal.store import Store


@dataclass(eq=False)
class Begun:
    """A step that has been begun, or that the journal knows the outcome of."""

    key: str
    position: int
    is_keyed: bool
    wish: StepWish
    attempts: int = 1
    is_recorded: bool = False
    is_over: bool = False
    output: Any = None
    arguments: Any = None
    effects: Effects = field(default_factory=Effects)
    began: float = field(default_factory=time.monotonic)
    usage: Mapping[str, Any] | None = None
    try_again_after: float | None = None  # seconds

    def entry(self, status: Status, **what: Any) -> StepEntry:
        return StepEntry(
            key=self.key,
            position=self.position,
            is_keyed=self.is_keyed,
            effect=self.wish.effect,
            status=status,
            attempts=self.attempts,
            arguments=self.arguments,
            took=time.monotonic() - self.began,
            kind=self.wish.kind,
            usage=self.usage,
            **what,
        )


# The step that is under way, in this thread or task.
_current: ContextVar[Begun | None] = ContextVar("step", default=None)


class Journal:
    """`begin` gives what the others take for `begun`. Each method may raise an Interrupted; nothing may catch that."""

    def __init__(self, store: Store) -> None:
        entries: Sequence[RecordedStep | RecordedWait] = [*store.steps.values(), *store.waits.values()]
        self.store = store
        self.last = self.position = max((entry.position for entry in entries), default=-1)
        self.unasked = {entry.key: entry.position for entry in entries if store.is_binding and not entry.is_keyed}
        self.places = Places()
        self.pending: list[StepEntry] = []  # values that no commit has written down yet
        self.end: Interrupted | None = None  # once there is one, nothing goes on
        self.lock = threading.RLock()

    # What the body sees

    @property
    def effects(self) -> Effects | None:
        """Those of the step that is under way; None outside of steps."""
        step = _current.get()
        if step and step.is_over:
            raise Permanent(
                f"step {step.key!r} is over, and a task that it began is not: nothing can be left with it any more"
            )
        return step.effects if step else None

    @property
    def step_key(self) -> str:
        """The key of the step that is under way; empty outside of steps."""
        step = _current.get()
        return step.key if step else ""

    @property
    def may_write(self) -> bool:
        step = _current.get()
        return step is not None and step.wish.effect == "transactional"

    def begin(self, wish: StepWish) -> Begun:
        """Begin a step, or look up what came of it; StepFailed where that was an error."""
        with self.lock:
            key = self._ask(wish.place)
            known = self.store.step(key, wish)
            if self.store.is_binding and key in self.store.waits:
                self._park(f"its journal has {key!r} as something it waits for, and the code as a step")
            begun = self._known(known, wish) if known else self._new(key, wish)
        if not begun.is_recorded:
            self._prepare(begun)
        return begun

    @contextmanager
    def inside(self, begun: Begun) -> Iterator[None]:
        """While its body runs, here or elsewhere."""
        token = _current.set(begun)
        try:
            with self.places.occupied():
                yield
        finally:
            begun.is_over = True
            _current.reset(token)

    def perform(self, begun: Begun, body: Callable[[], Any]) -> Any:
        """Do it and write down what came of it; its output as it will be read on a replay."""
        try:
            if begun.wish.effect == "transactional":
                return self._perform_in_transaction(begun, body)
            with self.inside(begun), self._limit(begun):
                output = body()
        except Exception as error:
            failure = self.fail(begun, error)
            raise failure from (None if failure is error else error)
        finally:
            self._leave_thread()
        return self.complete(begun, output)

    def complete(self, begun: Begun, output: Any) -> Any:
        """Write down the output of a step that was done elsewhere."""
        self.store.reach("after_call")
        try:
            text = self._text(begun, output)
        except Permanent as error:
            raise self.fail(begun, error) from error
        try:
            is_wanted_back = self._commit([begun.entry("done", output=as_read(text))], begun.effects)
        except Permanent as error:  # it leaves behind what it must not
            raise self.fail(begun, error) from error
        except Exception as error:
            if begun.wish.effect == "at_most_once":
                # It happened, so that must be known, even if another process owns the run by now.
                self.store.record_late(begun.key, text, begun.effects)
            self._lost(error)
        finally:
            self._leave_thread()
        self.store.reach("after_step_commit")
        self._go_on(is_wanted_back)
        return as_read(text)

    def fail(self, begun: Begun, error: Exception) -> Exception:
        """Write down that it failed; what to raise."""
        meant = self.store.explain(begun.key, error)
        if isinstance(meant, Interrupted):
            self._stop(meant, cause=error)
        if begun.wish.effect == "at_most_once" and not is_permanent(meant):
            if isinstance(meant, Retry):
                try:
                    self.store.forget(begun.key)
                except Exception as lost:
                    self._lost(lost)
                return meant
            self._park(f"step {begun.key!r} raised {describe(meant)}; it is unknown whether it happened")
        if isinstance(meant, Retry):
            return meant
        return self._record_failure(begun, meant)

    def value(self, place: Place, draw: Callable[[], Any]) -> Any:
        """Something that comes out differently each time, as it came out the first time; JSON."""
        return self.named_value(place, draw)[1]

    def named_value(self, place: Place, draw: Callable[[], Any], *, kind: Kind = "step") -> tuple[str, Any]:
        """The same with its key in front."""
        with self.lock:
            key = self._ask(place)
            return key, self._value(key, bool(place.key), draw, kind)

    def wait(self, wish: WaitWish) -> Any:
        """What came: the event, an Answer, how each child ended, or None for a time. `EXPIRED` where nothing did."""
        if self.store.in_transaction:
            raise Permanent(f"{wish.place.name!r}: a run cannot wait inside transaction.atomic()")
        with self.lock:
            key = self._ask(wish.place)
            known = self.store.wait(key, wish)
            if self.store.is_binding and key in self.store.steps:
                self._park(f"its journal has {key!r} as a step, and the code waits for it")
            if known is None:
                self._expect(key, is_keyed=bool(wish.place.key))
            elif tuple(known.sought) != sought_by(wish):
                self._park(f"its journal has {key!r} as a wait for something else than the code waits for now")
            if known is None or not known.is_over:
                known = self._answered(key, known, wish)
        self.store.recalled(key, "wait")
        came = known.result()
        if isinstance(wish, ChildrenWish) and came is not EXPIRED:
            # As they were when they were waited for: one that is requeued may come out otherwise.
            with self.lock:
                ends = self._value(f"{RESULTS}{key}", known.is_keyed, known.ends)
            return [Ended(**end) for end in ends]
        return came

    def require_end(self) -> None:
        """The body has returned: may it? What interrupted it may have been caught; or the code has changed."""
        if self.end:
            raise self.end
        with self.lock:
            if left := self._left():
                self._park(f"its journal has {_listed(left)}, and the code ended without asking for that")

    # Entries

    def _ask(self, place: Place) -> str:
        if self.end:
            raise self.end
        key = self.places.ask(place, inside=self.step_key)
        self.unasked.pop(key, None)
        return key

    def _new(self, key: str, wish: StepWish) -> Begun:
        self._expect(key, is_keyed=bool(wish.place.key))
        return Begun(key, self._next_position(), bool(wish.place.key), wish)

    def _next_position(self) -> int:
        self.position += 1
        if self.position >= self.store.max_entries:
            raise Permanent(
                f"the journal of this run has {self.position:,} entries, as many as WAKEFUL_MAX_ENTRIES allows. Let one "
                "step do more, or let the run end and wake again (run.wake_in)"
            )
        return self.position

    def _known(self, known: RecordedStep, wish: StepWish) -> Begun:
        begun = Begun(known.key, known.position, known.is_keyed, wish)
        if known.status == "done":
            self.store.recalled(known.key, wish.effect)
            begun.is_recorded, begun.output = True, known.output
        elif known.status == "started":
            self._park(
                f"step {known.key!r} was begun and never ended; it is unknown whether it happened", unproved=known.key
            )
        elif known.effect == "at_most_once" or self._goes_on_after(known):
            self.store.recalled(known.key, wish.effect)
            raise known.failure
        else:
            begun.attempts = known.attempts + 1
        return begun

    def _goes_on_after(self, known: RecordedStep) -> bool:
        return known.position < self.last

    def _expect(self, key: str, *, is_keyed: bool) -> None:
        """Does the journal end here, as far as order goes? Entries with keys of their own may be asked for at any time."""
        if not is_keyed and (left := self._left()):
            self._park(f"its journal has {_listed(left)} next, and the code asked for {key!r}")

    def _left(self) -> list[str]:
        return sorted(self.unasked, key=lambda key: self.unasked[key])

    def _value(self, key: str, is_keyed: bool, draw: Callable[[], Any], kind: Kind = "step") -> Any:
        if known := self.store.value(key):
            self.unasked.pop(key, None)
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

    def _answered(self, key: str, known: RecordedWait | None, wish: WaitWish) -> RecordedWait:
        position = known.position if known else self._next_position()
        wait = NewWait(key=key, position=position, is_new=known is None, wish=wish)
        answer = self.store.answer(wait)
        if answer is None:
            self._stop(Waiting(wait, self.pending))
        if isinstance(answer, Interrupted):
            self._stop(answer)
        if self.pending:
            self._commit_alone()
        return answer

    # Steps

    def _prepare(self, begun: Begun) -> None:
        """What must be known before the step's body begins."""
        if self.store.in_transaction:
            raise Permanent(f"step {begun.key!r} inside transaction.atomic(): a step has a commit of its own")
        if obstacle := self.store.obstacle(begun.key, begun.wish):
            self._stop(obstacle)
        self._reserve(begun)
        if begun.wish.effect == "at_most_once" or begun.wish.kind != "step":
            begun.arguments = shown(begun.wish.arguments)
        if begun.wish.effect == "at_most_once":
            self._commit_alone(begun.entry("started"))
            self.store.reach("after_intent_commit")
        elif begun.wish.effect == "idempotent" and self.pending:
            # It may be handed such a value, and must be handed the same one again.
            self._commit_alone()

    def _reserve(self, begun: Begun) -> None:
        """Set aside what the step may cost; wait until there is room for it, as often as that takes."""
        cost = begun.wish.cost
        if cost is None:
            return
        for number in count(1):
            refusal = self.store.reserve(begun.key, cost)
            if refusal is None:
                return
            if refusal.is_final:
                raise Permanent(refusal.reason)
            self.wait(
                BudgetWish(
                    place=Place(name="budget", key=fitting(f"{number} {begun.key}", "budget")),
                    cost=cost,
                    budget=refusal.budget,
                    reason=refusal.reason,
                    until=refusal.until,
                )
            )

    def _perform_in_transaction(self, begun: Begun, body: Callable[[], Any]) -> Any:
        with self.store.transaction(begun.key):
            with self.inside(begun), network_refused(self.store.agent, begun.key), self._limit(begun):
                output = body()
            self.store.reach("after_step_body")
            text = self._text(begun, output)
            drawn = self._drawn()
            is_wanted_back = self.store.write([*drawn, begun.entry("done", output=as_read(text))], begun.effects)
            self.store.reach("before_step_commit")
        self._is_written(drawn)
        self.store.reach("after_step_commit")
        self._go_on(is_wanted_back)
        return as_read(text)

    def _commit_alone(self, *entries: StepEntry) -> None:
        try:
            is_wanted_back = self._commit(entries, Effects(), at="before_intent_commit")
        except Exception as error:
            self._lost(error)
        self._go_on(is_wanted_back)

    def _commit(self, entries: Sequence[StepEntry], effects: Effects, *, at: str = "before_step_commit") -> bool:
        """Values that were drawn before go along."""
        drawn = self._drawn()
        is_wanted_back = self.store.commit([*drawn, *entries], effects, at=at)
        self._is_written(drawn)
        return is_wanted_back

    def _drawn(self) -> list[StepEntry]:
        with self.lock:
            return list(self.pending)

    def _is_written(self, drawn: Sequence[StepEntry]) -> None:
        written = {entry.key for entry in drawn}
        with self.lock:
            self.pending = [entry for entry in self.pending if entry.key not in written]

    def _record_failure(self, begun: Begun, error: Exception) -> Exception:
        kind, message = type(error).__name__, describe(error).partition(": ")[2]
        with self.lock:
            if begun.position < self.position:
                # What was begun beside it did not come after it: its failure stands behind them, and is tried again.
                self.position += 1
                begun.position = self.position
        failed = begun.entry(
            "failed",
            error=message,
            error_kind=kind,
            is_permanent=isinstance(error, Permanent) or is_permanent(error),
        )
        if not failed.is_permanent and begun.attempts <= begun.wish.retries:
            self._stop(TriedAgain(failed, begun.wish.retries + 1, error, self.pending, begun.try_again_after))
        self._commit_alone(failed)
        return StepFailed(begun.key, kind, message, permanent=failed.is_permanent)

    def _text(self, begun: Begun, output: Any) -> str:
        text = json.dumps(storable(output, f"the output of step {begun.key!r}"), ensure_ascii=False)
        size = len(text.encode())
        if size > self.store.max_output:
            raise Permanent(
                f"the output of step {begun.key!r} has {size:,} bytes; WAKEFUL_MAX_OUTPUT allows "
                f"{self.store.max_output:,}. Store it, and let the step give where it is"
            )
        return text

    def _limit(self, begun: Begun) -> AbstractContextManager[None]:
        seconds = begun.wish.seconds
        return nullcontext() if seconds is None else self.store.limit(begun.key, seconds)

    def _leave_thread(self) -> None:
        """Sessions of the body's own threads end with each step: nothing else ends them."""
        if not self.places.is_own_thread:
            self.store.leave_thread()

    # Ends

    def _park(self, reason: str, unproved: str = "") -> NoReturn:
        self._stop(Parked(reason, self.pending, unproved=unproved))

    def _go_on(self, is_wanted_back: bool) -> None:
        """At the edge of a step: was the run asked to stop here?"""
        if is_wanted_back:
            self._stop(Released("released between two steps: its worker stops"))

    def _lost(self, error: Exception) -> NoReturn:
        """The store, or the run, is gone. What of the step was committed, its next claim will read."""
        self._stop(Lost(error), cause=error)

    def _stop(self, end: Interrupted, cause: Exception | None = None) -> NoReturn:
        with self.lock:
            self.end = self.end or end
        raise self.end from cause


def _listed(keys: Sequence[str]) -> str:
    shown = ", ".join(repr(key) for key in keys[:5])
    return shown + (f" and {len(keys) - 5} more" if len(keys) > 5 else "")
