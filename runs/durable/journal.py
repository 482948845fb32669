"""The journal of a durable run, kept in the database: what its body does once is written down in a commit that ends with
the fence, and a replay of the body is given what is written there.

A transactional step's writes and its entry are one commit. Any other is called first and written down then; one that may
happen at most once has its intent committed before. Whatever ends the body for now (a wait, a release, an outcome that
only a person knows) is an Interrupted, after which this journal gives nothing more.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn
from uuid import UUID

import structlog
from django.conf import settings
from django.db import connection, transaction
from uuid_utils.compat import uuid7

from agents.effects import Effects
from agents.exceptions import Permanent, Retry, StepFailed, is_permanent
from agents.guards.network import network_refused
from agents.guards.storable import shown, storable
from agents.journal.keys import Places
from agents.journal.protocol import (
    ApprovalWish,
    ChildrenWish,
    Ended,
    EventWish,
    Place,
    StepWish,
    TimeWish,
    WaitWish,
)
from runs.attempt.clean_session import reset_settings
from runs.attempt.deadline import deadline
from runs.attempt.effects import Rows, rows_of
from runs.attempt.failure import as_permanent, describe
from runs.claim import Claim
from runs.db.away import CONNECTION_ERRORS
from runs.db.session import writing
from runs.durable import recorded
from runs.durable.progress import commit, forget_intent, record_late
from runs.durable.recorded import RecordedStep, RecordedWait
from runs.exceptions import Interrupted, RunLost, StepTimedOut
from runs.failpoints import failpoint
from runs.models import Approval, Attempt, Step, Wait
from runs.states import RunStatus
from runs.transitions.entries import ApprovalEntry, StepEntry, WaitEntry
from runs.transitions.outcome import NoticeRow, Outcome

log = structlog.get_logger(__name__)

Effect, Status = Step.Effect, Step.Status


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

    def entry(self, status: Step.Status, **what: Any) -> StepEntry:
        return StepEntry(
            key=self.key,
            position=self.position,
            is_keyed=self.is_keyed,
            effect=Effect(self.wish.effect),
            status=status,
            attempts=self.attempts,
            arguments=self.arguments,
            took=time.monotonic() - self.began,
            **what,
        )


# The step that is under way, in this thread or task.
_current: ContextVar[Begun | None] = ContextVar("step", default=None)


class Journal:
    def __init__(self, claim: Claim, steps: Sequence[RecordedStep], waits: Sequence[RecordedWait]) -> None:
        self.claim = claim
        self.steps = {step.key: step for step in steps}
        self.waits = {wait.key: wait for wait in waits}
        entries: Sequence[RecordedStep | RecordedWait] = [*steps, *waits]
        self.last = self.position = max((entry.position for entry in entries), default=-1)
        self.unasked = {entry.key: entry.position for entry in entries if not entry.is_keyed}
        self.places = Places()
        self.pending: list[StepEntry] = []  # values that no commit has written down yet
        self.has_progressed = False
        self.has_journal = claim.has_journal  # does the run's row say so?
        self.interruption: BaseException | None = None  # once there is one, nothing goes on
        self.outcome: Outcome | None = None  # what that makes of the run, if it is not lost
        self.lock = threading.RLock()

    # What the body sees

    @property
    def effects(self) -> Effects | None:
        step = _current.get()
        if step and step.is_over:
            raise Permanent(
                f"step {step.key!r} is over, and a task that it began is not: nothing can be left with it any more"
            )
        return step.effects if step else None

    @property
    def step_key(self) -> str:
        step = _current.get()
        return step.key if step else ""

    def begin(self, wish: StepWish) -> Begun:
        with self.lock:
            key = self._ask(wish.place)
            known = self.steps.get(key)
            if key in self.waits:
                self._park(f"its journal has {key!r} as something it waits for, and the code as a step")
            begun = self._known(known, wish) if known else self._new(key, wish)
        if not begun.is_recorded:
            self._prepare(begun)
        return begun

    @contextmanager
    def inside(self, begun: Begun) -> Iterator[None]:
        token = _current.set(begun)
        try:
            with self.places.occupied():
                yield
        finally:
            begun.is_over = True
            _current.reset(token)

    def perform(self, begun: Begun, body: Callable[[], Any]) -> Any:
        try:
            if begun.wish.effect == "transactional":
                return self._perform_in_transaction(begun, body)
            with self.inside(begun), self._limit(begun):
                output = body()
        except (StepTimedOut, Exception) as error:
            failure = self.fail(begun, error)
            raise failure from (None if failure is error else error)
        finally:
            self._leave_thread()
        return self.complete(begun, output)

    def complete(self, begun: Begun, output: Any) -> Any:
        failpoint("after_call")
        try:
            text = self._text(begun, output)
        except Permanent as error:
            raise self.fail(begun, error) from error
        try:
            with writing():
                rows = rows_of(self.claim, begun.effects)
                is_wanted_back = self._commit([begun.entry(Status.DONE, output=json.loads(text))], rows)
                failpoint("before_step_commit")
        except Permanent as error:  # it leaves behind what it must not
            raise self.fail(begun, error) from error
        except Exception as error:
            if begun.wish.effect == "at_most_once":
                # It happened, so that must be known, whoever owns the run by now.
                record_late(self.claim, begun.key, text, begun.effects)
            self._lost(error)
        finally:
            self._leave_thread()
        failpoint("after_step_commit")
        self._go_on(is_wanted_back)
        return json.loads(text)

    def fail(self, begun: Begun, error: BaseException) -> Exception:
        if isinstance(error, StepTimedOut):
            error = TimeoutError(str(error))
        if isinstance(error, RunLost) or _is_gone(error):
            self._lost(error)
        error = as_permanent(error)
        if begun.wish.effect == "at_most_once" and not is_permanent(error):
            if isinstance(error, Retry):
                try:
                    forget_intent(self.claim, begun.key)
                except Exception as lost:
                    self._lost(lost)
                return error
            self._park(f"step {begun.key!r} raised {describe(error)}; nobody knows whether it happened")
        if isinstance(error, Retry):
            return error
        return self._record_failure(begun, error)

    def value(self, place: Place, draw: Callable[[], Any]) -> Any:
        with self.lock:
            key = self._ask(place)
            return self._value(key, bool(place.key), draw)

    def wait(self, wish: WaitWish) -> Any:
        if connection.in_atomic_block:
            raise Permanent(f"{wish.place.name!r}: a run cannot wait inside transaction.atomic()")
        with self.lock:
            key = self._ask(wish.place)
            known = self.waits.get(key)
            if key in self.steps:
                self._park(f"its journal has {key!r} as a step, and the code waits for it")
            if known is None:
                self._expect(key, is_keyed=bool(wish.place.key))
            else:
                self._compare(known, wish)
            if known is None or not known.is_over:
                self._suspend(self._wait_entry(key, wish))
            if known.kind == Wait.Kind.CHILDREN and known.status == Wait.Status.DONE:
                # As they were when they were waited for: one that is requeued may come out otherwise.
                ends = self._value(f"results of {key}", known.is_keyed, lambda: recorded.ended(known.children))
                return [Ended(**end) for end in ends]
        return known.result()

    # What the executor asks

    def require_end(self) -> None:
        """The body has returned: may it? What interrupted it may have been caught; or the code has changed."""
        if self.interruption:
            raise self.interruption
        with self.lock:
            if left := sorted(self.unasked, key=lambda key: self.unasked[key]):
                self._park(f"its journal has {_listed(left)}, and the code ended without asking for that")

    @property
    def progressed_claim(self) -> Claim:
        """The claim, its attempts counted anew if a step has been committed."""
        return replace(self.claim, attempt=0) if self.has_progressed else self.claim

    # Entries

    def _ask(self, place: Place) -> str:
        if self.interruption:
            raise self.interruption
        key = self.places.ask(place, inside=self.step_key)
        self.unasked.pop(key, None)
        return key

    def _new(self, key: str, wish: StepWish) -> Begun:
        self._expect(key, is_keyed=bool(wish.place.key))
        return Begun(key, self._next_position(), bool(wish.place.key), wish)

    def _next_position(self) -> int:
        self.position += 1
        if self.position >= settings.WAKEFUL_MAX_ENTRIES:
            raise Permanent(
                f"the journal of this run has {self.position:,} entries, as many as WAKEFUL_MAX_ENTRIES allows. Let one "
                "step do more, or let the run end and wake again (run.wake_in)"
            )
        return self.position

    def _known(self, known: RecordedStep, wish: StepWish) -> Begun:
        begun = Begun(known.key, known.position, known.is_keyed, wish)
        if known.status == Status.DONE:
            begun.is_recorded, begun.output = True, known.output
        elif known.status == Status.STARTED:
            self._park(
                f"step {known.key!r} was begun and never ended; nobody knows whether it happened", unproved=known.key
            )
        elif known.effect == Effect.AT_MOST_ONCE or self._goes_on_after(known):
            raise known.failure
        else:
            begun.attempts = known.attempts + 1
        return begun

    def _goes_on_after(self, known: RecordedStep) -> bool:
        return known.position < self.last

    def _expect(self, key: str, *, is_keyed: bool) -> None:
        """Does the journal end here, as far as order goes? Entries with keys of their own may be asked for at any time."""
        if not is_keyed and self.unasked:
            left = sorted(self.unasked, key=lambda key: self.unasked[key])
            self._park(f"its journal has {_listed(left)} next, and the code asked for {key!r}")

    def _value(self, key: str, is_keyed: bool, draw: Callable[[], Any]) -> Any:
        if known := self.steps.get(key):
            self.unasked.pop(key, None)
            return known.output
        self._expect(key, is_keyed=is_keyed)
        position = self._next_position()
        drawn = storable(draw(), key)
        self.pending.append(
            StepEntry(
                key=key,
                position=position,
                is_keyed=is_keyed,
                effect=Effect.VALUE,
                status=Status.DONE,
                output=drawn,
            )
        )
        return json.loads(json.dumps(drawn))

    def _prepare(self, begun: Begun) -> None:
        """What must be known before the step's body begins."""
        if connection.in_atomic_block:
            raise Permanent(f"step {begun.key!r} inside transaction.atomic(): a step has a commit of its own")
        if begun.wish.effect == "at_most_once":
            begun.arguments = shown(begun.wish.arguments)
            self._commit_alone(begun.entry(Status.STARTED))
            failpoint("after_intent_commit")
        elif begun.wish.effect == "idempotent" and self.pending:
            # It may be handed such a value, and must be handed the same one again.
            self._commit_alone()

    def _perform_in_transaction(self, begun: Begun, body: Callable[[], Any]) -> Any:
        text, is_wanted_back, is_committed = "", False, False

        def committed() -> None:
            nonlocal is_committed
            is_committed = True

        try:
            with writing():
                transaction.on_commit(committed)  # before whatever the body has done then
                with self.inside(begun), network_refused(self.claim.agent, begun.key), self._limit(begun):
                    output = body()
                failpoint("after_step_body")
                reset_settings(self.claim.session_name)
                text = self._text(begun, output)
                rows = rows_of(self.claim, begun.effects)
                is_wanted_back = self._commit([begun.entry(Status.DONE, output=json.loads(text))], rows)
                failpoint("before_step_commit")
        except Exception:
            if not is_committed:
                raise
            log.warning("step.error_after_commit", run=str(self.claim.run_id), step=begun.key, exc_info=True)
        failpoint("after_step_commit")
        self._go_on(is_wanted_back)
        return json.loads(text)

    def _commit_alone(self, *entries: StepEntry) -> None:
        try:
            with writing():
                is_wanted_back = self._commit(entries, Rows())
                if is_wanted_back and any(entry.status == Status.STARTED for entry in entries):
                    transaction.set_rollback(True)  # it stops here, so nobody need ask whether it happened
                failpoint("before_intent_commit")
        except Exception as error:
            self._lost(error)
        self._go_on(is_wanted_back)

    def _commit(self, entries: Sequence[StepEntry], rows: Rows) -> bool:
        """The last statement of a step's transaction. Values that were drawn before go along."""
        is_progress = any(entry.status == Status.DONE for entry in entries)
        with self.lock:
            drawn, is_first = list(self.pending), is_progress and not self.has_progressed
            has_journal = self.has_journal
        written = {entry.key for entry in drawn}
        is_wanted_back = commit(
            self.claim, [*drawn, *entries], rows, is_first_progress=is_first, has_journal=has_journal
        )

        def committed() -> None:
            with self.lock:
                self.pending = [entry for entry in self.pending if entry.key not in written]
                self.has_progressed |= is_progress
                self.has_journal = True

        transaction.on_commit(committed)
        return is_wanted_back

    def _record_failure(self, begun: Begun, error: BaseException) -> Exception:
        kind, message = type(error).__name__, describe(error).partition(": ")[2]
        with self.lock:
            if begun.position < self.position:
                # What was begun beside it did not come after it: its failure stands behind them, and is tried again.
                self.position += 1
                begun.position = self.position
        failed = begun.entry(
            Status.FAILED,
            error=message,
            error_kind=kind,
            is_permanent=isinstance(error, Permanent) or is_permanent(error),
        )
        if not failed.is_permanent and begun.attempts <= begun.wish.retries:
            self._interrupt(
                Outcome(
                    status=RunStatus.QUEUED,
                    attempt=Attempt.Outcome.FAILED,
                    reason=f"step {begun.key!r} is tried again: {begun.attempts} of {begun.wish.retries + 1} tries failed",
                    error=describe(error),
                    due_in=self.claim.policy.backoff_after(begun.attempts),
                    give_back=True,
                    entries=[*self.pending, failed],
                )
            )
        self._commit_alone(failed)
        return StepFailed(begun.key, kind, message, permanent=failed.is_permanent)

    def _text(self, begun: Begun, output: Any) -> str:
        text = json.dumps(storable(output, f"the output of step {begun.key!r}"), ensure_ascii=False)
        size = len(text.encode())
        if size > settings.WAKEFUL_MAX_OUTPUT:
            raise Permanent(
                f"the output of step {begun.key!r} has {size:,} bytes; WAKEFUL_MAX_OUTPUT allows "
                f"{settings.WAKEFUL_MAX_OUTPUT:,}. Store it, and let the step give where it is"
            )
        return text

    def _limit(self, begun: Begun) -> AbstractContextManager[None]:
        seconds = begun.wish.seconds
        if seconds is None:
            return nullcontext()
        if threading.current_thread() is not threading.main_thread():
            raise Permanent(
                f"step {begun.key!r}: timeout= works in the body's own thread; in others use the client's own"
            )
        return deadline(
            seconds, lambda limit: StepTimedOut(f"step {begun.key!r} took longer than its timeout of {limit:g} s")
        )

    # Waits

    def _wait_entry(self, key: str, wish: WaitWish) -> WaitEntry:
        known = self.waits.get(key)
        place: dict[str, Any] = {
            "key": key,
            "position": known.position if known else self._next_position(),
            "is_keyed": bool(wish.place.key),
        }
        match wish:
            case TimeWish():
                return WaitEntry(kind=Wait.Kind.TIME, duration=wish.duration, until=wish.until, **place)
            case EventWish():
                return WaitEntry(
                    kind=Wait.Kind.EVENT,
                    duration=wish.timeout,
                    event_type=wish.type,
                    event_source=wish.source,
                    match=wish.match,
                    **place,
                )
            case ApprovalWish():
                approval = ApprovalEntry(
                    id=UUID(int=uuid7().int),
                    question=wish.question,
                    detail=wish.detail,
                    arguments=storable(wish.arguments, f"the arguments of {key!r}"),
                    on_expiry=Approval.OnExpiry(wish.on_expiry),
                )
                return WaitEntry(kind=Wait.Kind.APPROVAL, duration=wish.expires, approval=approval, **place)
            case ChildrenWish():
                return WaitEntry(kind=Wait.Kind.CHILDREN, duration=wish.timeout, children=wish.children, **place)

    def _compare(self, known: RecordedWait, wish: WaitWish) -> None:
        """Does the code wait for what the journal says it does? An approval is good for what was asked, and nothing else."""
        if not known.fits(wish):
            self._park(f"its journal has {known.key!r} as a wait for something else than the code waits for now")

    def _suspend(self, wait: WaitEntry) -> NoReturn:
        self._interrupt(
            Outcome(
                status=RunStatus.WAITING,
                attempt=Attempt.Outcome.WAITING,
                reason=wait.key,
                entries=self.pending,
                wait=wait,
                notices=self._asked(wait),
                holds_key=self._holds_key,
            )
        )

    def _asked(self, wait: WaitEntry) -> Sequence[NoticeRow]:
        """A person is to hear of what is asked, once."""
        if wait.approval is None or wait.key in self.waits:
            return ()
        return [
            NoticeRow(sender=self.claim.agent, text=f"Asks for approval: {wait.approval.question}", urgency="normal")
        ]

    # Ends

    def _park(self, reason: str, unproved: str = "") -> NoReturn:
        self._interrupt(
            Outcome(
                status=RunStatus.UNCERTAIN,
                attempt=Attempt.Outcome.UNCERTAIN,
                reason=reason,
                entries=self.pending,
                holds_key=self._holds_key,
                unproved=unproved,
            )
        )

    def _go_on(self, is_wanted_back: bool) -> None:
        """At the edge of a step: is there somebody who wants the run to stop here?"""
        if is_wanted_back:
            self._interrupt(
                Outcome(
                    status=RunStatus.QUEUED,
                    attempt=Attempt.Outcome.RELEASED,
                    reason="released between two steps: its worker stops",
                    give_back=True,
                )
            )

    def _lost(self, error: BaseException) -> NoReturn:
        """The database, or the run, is gone. What of the step was committed, its next claim will read."""
        with self.lock:
            self.interruption = self.interruption or error
        if isinstance(error, RunLost):
            raise Interrupted from error
        raise Interrupted(describe(error)) from error

    def _interrupt(self, outcome: Outcome) -> NoReturn:
        with self.lock:
            if self.interruption is None:
                self.interruption = Interrupted(outcome.reason)
                self.outcome = outcome
        raise self.interruption

    @property
    def _holds_key(self) -> bool:
        return self.claim.policy.holds_key_while_waiting(self.claim.key_limit)

    def _leave_thread(self) -> None:
        """Sessions of the body's own threads end with each step: nobody else would end them."""
        if not self.places.is_own_thread:
            connection.close()


def _is_gone(error: BaseException) -> bool:
    """Is it the database that has gone, so that nobody can say what was committed?"""
    if not isinstance(error, CONNECTION_ERRORS):
        return False
    return connection.connection is None or not connection.is_usable()


def _listed(keys: Sequence[str]) -> str:
    shown = ", ".join(repr(key) for key in keys[:5])
    return shown + (f" and {len(keys) - 5} more" if len(keys) > 5 else "")
