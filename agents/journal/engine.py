"""The engine of durable bodies: it records each step in a store, and gives the recorded outputs to a replay of the body.

A transactional step and its entry are one commit. Another step is called first and recorded afterwards; an at_most_once step
has its intent committed before the call. An Interrupted stops the body before its end; after that this journal answers
nothing more.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, NoReturn

from agents.exceptions import Permanent, Retry, SessionBusy, StepFailed, describe, is_permanent
from agents.guards.network import network_refused
from agents.guards.storable import shown, storable
from agents.journal.budget import Cost, Limits, NoRoom, Refusal, Reserved, Used
from agents.journal.canonical import as_read
from agents.journal.ends import Interrupted, Lost, Parked, Released, TriedAgain, Waiting
from agents.journal.entries import RESULTS, VALUE, NewWait, RecordedStep, RecordedWait, Status, StepEntry, sought_by
from agents.journal.keys import Places
from agents.journal.protocol import (
    EXPIRED,
    BudgetRequest,
    ChildrenRequest,
    Ended,
    Kind,
    Place,
    SessionRequest,
    StepRequest,
    WaitRequest,
    fitting,
)
from agents.journal.store import Store
from agents.kernel.durations import in_words
from agents.kernel.effects import Effects
from agents.telemetry import doing


@dataclass(eq=False)
class Begun:
    """A step that has begun, or whose outcome is recorded."""

    key: str
    position: int
    is_keyed: bool
    request: StepRequest
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
            effect=self.request.effect,
            status=status,
            attempts=self.attempts,
            arguments=self.arguments,
            took=time.monotonic() - self.began,
            kind=self.request.kind,
            usage=self.usage,
            **what,
        )


class Undone(Exception):
    """A transactional step did nothing, for the reason in `output`: its writes and effects are rolled back, and that is recorded."""

    def __init__(self, output: Any) -> None:
        super().__init__(output)
        self.output = output


LOST_ANSWER = (
    "The answer is paid and lost, and neither a retry nor a requeue asks the model again: raise WAKEFUL_MAX_OUTPUT, then fork the run "
    "at this step, which asks and pays once more"
)
# The running step of this thread or task.
_current: ContextVar[Begun | None] = ContextVar("step", default=None)


class Journal:
    """`begin` returns the `begun` of the other methods. Each method may raise an Interrupted, which nothing may catch."""

    def __init__(self, store: Store) -> None:
        entries: Sequence[RecordedStep | RecordedWait] = [*store.steps.values(), *store.waits.values()]
        self.store = store
        self.last = self.position = max((entry.position for entry in entries), default=-1)
        self.unasked = {entry.key: entry.position for entry in entries if store.is_binding and not entry.is_keyed}
        self.places = Places()
        self.pending: list[StepEntry] = []  # values that are not committed yet
        self.end: Interrupted | None = None  # once set, the body may not go on
        self.session = ""  # that the run holds
        self.lock = threading.RLock()

    # What the body sees

    @property
    def effects(self) -> Effects | None:
        """The effects of the running step; None outside of steps."""
        step = _current.get()
        if step and step.is_over:
            raise Permanent(
                f"step {step.key!r} has ended, but a task that it started still runs: it can no longer emit, notify or spawn. "
                "Await the task in the step"
            )
        return step.effects if step else None

    @property
    def step_key(self) -> str:
        """The key of the running step; empty outside of steps."""
        step = _current.get()
        return step.key if step else ""

    @property
    def may_write(self) -> bool:
        step = _current.get()
        return step is not None and step.request.effect == "transactional"

    def begin(self, request: StepRequest) -> Begun:
        """Begin a step, or look up its recorded outcome; StepFailed if that is an error."""
        with self.lock:
            key = self._ask(request.place)
            known = self.store.step(key, request)
            if self.store.is_binding and key in self.store.waits:
                self._park(f"its journal has {key!r} as a wait, but the code asks for a step")
            begun = self._known(known, request) if known else self._new(key, request)
        if not begun.is_recorded:
            self._prepare(begun)
        return begun

    @contextmanager
    def inside(self, begun: Begun) -> Iterator[None]:
        """Within, the body of the step runs, in this thread or in a task."""
        token = _current.set(begun)
        try:
            with self.places.occupied(), _told(begun):
                yield
        finally:
            begun.is_over = True
            _current.reset(token)

    def perform(self, begun: Begun, body: Callable[[], Any]) -> Any:
        """Run the step and record its outcome; return the output as a replay will get it."""
        try:
            if begun.request.effect == "transactional":
                return self._perform_in_transaction(begun, body)
            with self.inside(begun), self._limit(begun):
                output = body()
        except Undone as undone:
            begun.effects, output = Effects(), undone.output
        except Exception as error:
            failure = self.fail(begun, error)
            raise failure from (None if failure is error else error)
        finally:
            self._leave_thread()
        return self.complete(begun, output)

    def complete(self, begun: Begun, output: Any) -> Any:
        """Record the output of a step whose body has run."""
        self.store.reach("after_call")
        try:
            text = self._text(begun, output)
        except Permanent as error:
            if begun.request.kind == "model":  # paid, so only a person has it made once more
                begun.request = replace(begun.request, effect="at_most_once")
            raise self.fail(begun, error) from error
        try:
            is_wanted_back = self._commit([begun.entry("done", output=as_read(text))], self._effects_of(begun))
        except Permanent as error:  # its effects are invalid
            raise self.fail(begun, error) from error
        except Exception as error:
            if begun.request.effect == "at_most_once":
                # The call happened. Record that even if another process owns the run now.
                self.store.record_late(begun.key, text, self._effects_of(begun))
            self._lost(error)
        finally:
            self._leave_thread()
        self.store.reach("after_step_commit")
        self._go_on(is_wanted_back)
        return as_read(text)

    def fail(self, begun: Begun, error: Exception) -> Exception:
        """Record that the step failed; return the exception to raise."""
        if isinstance(error, NoRoom):
            return self._without_room(begun, error)
        meant = self.store.explain(begun.key, error)
        if isinstance(meant, Interrupted):
            self._stop(meant, cause=error)
        if begun.request.effect == "at_most_once" and not is_permanent(meant):
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

    def withdraw(self, begun: Begun) -> None:
        """The step has not happened, and may be asked for again: its body asked for something else first."""
        with self.lock:
            self.places.forget(begun.key)

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

    def hold(self, session: str, call: str) -> None:
        """Hold a session for the turn of this call; wait for it where another run holds it. SessionBusy: it waited too long."""
        if self.session:
            raise Permanent(
                f"run.llm(session={session!r}) while another call takes a turn in session {self.session!r}: a run takes one turn "
                "at a time; await the other call first"
            )
        for number in count(1):
            try:
                busy = self.store.hold(session)
            except Exception as error:
                self._lost(error)
            if busy is None:
                self.session = session
                return
            place = Place(name="session", key=fitting(f"{number} {call}", "session"))
            request = SessionRequest(place=place, session=session, reason=busy.reason, timeout=busy.at_most)
            if self.wait(request) is EXPIRED:
                raise SessionBusy(f"{busy.reason}; this run has waited for {in_words(busy.at_most)}")

    def let_go(self) -> None:
        """The turn is over: another run may take the next one. Within a transaction call `has_let_go` after its commit: until
        then the run holds the session."""
        if self.session:
            self.store.let_go(self.session)
        if not self.may_write:
            self.has_let_go()

    def has_let_go(self) -> None:
        self.session = ""

    def reserve(
        self, cost_of: Callable[[Limits], Cost | None], *, is_spare: bool = False
    ) -> tuple[Reserved | None, Limits]:
        """The last act before a request to a model is sent, within its step. Raises NoRoom, which `fail` makes a wait; a request
        that `is_spare` fails instead of waiting for a person."""
        step = _current.get()
        limits = self._look_before_request(step)
        cost = cost_of(limits)
        if cost is None:
            return None, limits
        try:
            reserved = self.store.reserve(self.step_key, cost)
        except Permanent as error:
            raise NoRoom(cost, Refusal(budget="", reason=str(error), is_final=True)) from error
        except Exception as error:
            self._lost(error)
        if isinstance(reserved, Refusal):
            raise NoRoom(cost, replace(reserved, is_final=True) if is_spare and reserved.is_never else reserved)
        return reserved, limits

    def settle(self, reserved: Reserved, used: Used) -> None:
        """The request is over."""
        self.store.settle(reserved, used)

    def has_outcome(self, known: RecordedStep) -> bool:
        """Is a replay given what is recorded? The failure of a step that may be repeated, and that nothing followed, is not an
        outcome: the step is made once more."""
        return known.status != "failed" or known.effect == "at_most_once" or known.position < self.last

    def require_end(self) -> None:
        """Call when the body has returned. Raises if it caught an Interrupted, or left entries of its journal unused."""
        if self.end:
            raise self.end
        with self.lock:
            if left := self._left():
                self._park(f"its journal has {_listed(left)}, but the code ended without asking for it")

    # Entries

    def _ask(self, place: Place) -> str:
        if self.end:
            raise self.end
        key = self.places.ask(place, inside=self.step_key)
        self.unasked.pop(key, None)
        return key

    def _new(self, key: str, request: StepRequest) -> Begun:
        self._expect(key, is_keyed=bool(request.place.key))
        return Begun(key, self._next_position(), bool(request.place.key), request)

    def _next_position(self) -> int:
        self.position += 1
        if self.position >= self.store.max_entries:
            raise Permanent(
                f"the journal of this run has {self.position:,} entries, the limit of WAKEFUL_MAX_ENTRIES. Do more in one "
                "step, or end the run and wake again (run.wake_in)"
            )
        return self.position

    def _known(self, known: RecordedStep, request: StepRequest) -> Begun:
        begun = Begun(known.key, known.position, known.is_keyed, request)
        if known.status == "done":
            self.store.recalled(known.key, request.effect)
            begun.is_recorded, begun.output = True, known.output
        elif known.status == "started":
            self._park(
                f"step {known.key!r} has begun and not ended; it is unknown whether it happened", unproved=known.key
            )
        elif self.has_outcome(known):
            self.store.recalled(known.key, request.effect)
            raise known.failure
        else:
            begun.attempts = known.attempts + 1
        return begun

    def _expect(self, key: str, *, is_keyed: bool) -> None:
        """Park the run if its journal has another entry next. Entries with a key may be asked for in any order."""
        if not is_keyed and (left := self._left()):
            self._park(f"its journal has {_listed(left)} next, but the code asked for {key!r}")

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

    def _answered(self, key: str, known: RecordedWait | None, request: WaitRequest) -> RecordedWait:
        position = known.position if known else self._next_position()
        wait = NewWait(key=key, position=position, is_new=known is None, request=request)
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
        """Check that the step may run here; commit its intent, or values that it may pass on."""
        if self.store.in_transaction:
            raise Permanent(
                f"step {begun.key!r} inside transaction.atomic(): call it outside, a step commits by itself"
            )
        if obstacle := self.store.obstacle(begun.key, begun.request):
            self._stop(obstacle)
        self._spend(begun)
        if begun.request.effect == "at_most_once" or begun.request.kind != "step":
            begun.arguments = shown(begun.request.arguments)
        if begun.request.effect == "at_most_once":
            self._commit_alone(begun.entry("started"))
            self.store.reach("after_intent_commit")
        elif begun.request.effect == "idempotent" and self.pending:
            # A repeated call must pass the same values.
            self._commit_alone()

    def _spend(self, begun: Begun) -> None:
        """Count the call of a tool; wait until there is room for it, as often as that takes."""
        cost = begun.request.cost
        if cost is None:
            return
        for number in count(1):
            refusal = self.store.spend(cost)
            if refusal is None:
                return
            if refusal.is_final:
                raise Permanent(refusal.reason)
            self._wait_for_room(begun, cost, refusal, number)

    def _look_before_request(self, step: Begun | None) -> Limits:
        try:
            end = self.store.reason_to_stop()
            limits = self.store.limits()
        except Exception as error:
            self._lost(error)
        if end:
            self._unbegin(step)
            self._stop(end)
        return limits

    def _without_room(self, begun: Begun, error: NoRoom) -> Permanent:
        """The request was not made, so its step has not begun: it begins again once there is room."""
        self._unbegin(begun)
        if error.refusal.is_final:
            return Permanent(error.refusal.reason)
        number = 0
        while True:  # until one of the waits is not over
            number += 1
            self._wait_for_room(begun, error.cost, error.refusal, number)

    def _unbegin(self, step: Begun | None) -> None:
        if step and step.request.effect == "at_most_once":
            try:
                self.store.forget(step.key)
            except Exception as lost:
                self._lost(lost)

    def _wait_for_room(self, begun: Begun, cost: Cost, refusal: Refusal, number: int) -> None:
        place = Place(name="budget", key=fitting(f"{number} {begun.key}", "budget"))
        request = BudgetRequest(
            place=place, cost=cost, budget=refusal.budget, reason=refusal.reason, until=refusal.until
        )
        self.wait(request)

    def _perform_in_transaction(self, begun: Begun, body: Callable[[], Any]) -> Any:
        with self.store.transaction(begun.key):
            with self.inside(begun), network_refused(self.store.agent, begun.key), self._limit(begun):
                output = body()
            self.store.reach("after_step_body")
            text = self._text(begun, output)
            drawn = self._drawn()
            done = begun.entry("done", output=as_read(text))
            is_wanted_back = self.store.write([*drawn, done], self._effects_of(begun))
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
        """Commit the entries together with the pending values."""
        drawn = self._drawn()
        is_wanted_back = self.store.commit([*drawn, *entries], effects, at=at)
        self._is_written(drawn)
        return is_wanted_back

    def _effects_of(self, begun: Begun) -> Effects:
        if self.store.is_tainted:
            begun.effects.taint()
        return begun.effects

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
                # Steps that ran beside it did not depend on it: place its failure behind them, so that it is retried.
                self.position += 1
                begun.position = self.position
        failed = begun.entry("failed", error=message, error_kind=kind, is_permanent=is_permanent(error))
        if not failed.is_permanent and begun.attempts <= begun.request.retries:
            self._stop(TriedAgain(failed, begun.request.retries + 1, error, self.pending, begun.try_again_after))
        self._commit_alone(failed)
        return StepFailed(begun.key, kind, message, permanent=failed.is_permanent)

    def _text(self, begun: Begun, output: Any) -> str:
        text = json.dumps(storable(output, f"the output of step {begun.key!r}"), ensure_ascii=False)
        size = len(text.encode())
        if size > self.store.max_output:
            is_paid = begun.request.kind == "model"
            raise Permanent(
                f"the output of step {begun.key!r} has {size:,} bytes; WAKEFUL_MAX_OUTPUT allows {self.store.max_output:,}. "
                + (LOST_ANSWER if is_paid else "Store it elsewhere and return its location")
            )
        return text

    def _limit(self, begun: Begun) -> AbstractContextManager[None]:
        seconds = begun.request.seconds
        return nullcontext() if seconds is None else self.store.limit(begun.key, seconds)

    def _leave_thread(self) -> None:
        """End the database session of a thread of the body after its step: nothing else would."""
        if not self.places.is_own_thread:
            self.store.leave_thread()

    # Ends

    def _park(self, reason: str, unproved: str = "") -> NoReturn:
        self._stop(Parked(reason, self.pending, unproved=unproved))

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


def _told(begun: Begun) -> AbstractContextManager[None]:
    """Of requests to models and calls of tools pydantic-ai tells itself."""
    if begun.request.kind != "step":
        return nullcontext()
    about = {
        "wakeful.step.key": begun.key,
        "wakeful.step.effect": begun.request.effect,
        "wakeful.step.attempt": begun.attempts,
    }
    return doing(f"step {begun.request.place.name}", **about)


def _listed(keys: Sequence[str]) -> str:
    shown = ", ".join(repr(key) for key in keys[:5])
    return shown + (f" and {len(keys) - 5} more" if len(keys) > 5 else "")
