"""The journal of a shadow run: transactional steps are done, in savepoints of the one transaction that is rolled back;
calls to the outside and waits are answered by what the original run's journal says of them, or the shadow run stops there.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn
from uuid import UUID

from django.db import connection, transaction

from agents.durations import in_words
from agents.effects import Effects
from agents.exceptions import Retry, StepFailed
from agents.guards.storable import shown
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
from agents.journal.simulated import Begun, Execution
from runs.attempt import effects
from runs.attempt.deadline import deadline
from runs.attempt.failure import as_permanent
from runs.claim import Claim
from runs.db.sql import execute
from runs.durable import recorded
from runs.durable.recorded import RecordedStep, RecordedWait
from runs.exceptions import StepTimedOut
from runs.models import Step, Wait

STATES = "state "  # what begins the names of values read from the agent's state


@dataclass(frozen=True, kw_only=True)
class Stop:
    """Where a shadow run cannot go on: at a call, a wait, somebody's lock, its limit of time, or in a thread."""

    kind: str
    said: str
    key: str = ""
    effect: str = ""
    arguments: Any = None


@dataclass(frozen=True, kw_only=True)
class Taken:
    """An entry that today's code asked for: a step, a value or a wait; how it was come by: done, journal, drawn, failed."""

    key: str
    kind: str
    how: str


class Stopped(BaseException):
    """A shadow run goes no further; passes through an agent's `except Exception`."""

    def __init__(self, stop: Stop) -> None:
        super().__init__(stop.said)
        self.stop = stop


class ShadowJournal(Execution):
    def __init__(self, claim: Claim, origin: UUID | None) -> None:
        super().__init__(claim.agent)
        steps, waits = recorded.read(origin) if origin else ([], [])
        known: list[RecordedStep | RecordedWait] = [*steps, *waits]
        self.claim = claim
        self.steps = {step.key: step for step in steps}
        self.waits = {wait.key: wait for wait in waits}
        self.last = max((entry.position for entry in known), default=-1)
        self.taken: list[Taken] = []
        self._body = ReadOnly()

    @property
    def not_asked(self) -> list[str]:
        """What the original's journal has, and today's code did not come to."""
        asked = {entry.key for entry in self.taken} | {f"results of {entry.key}" for entry in self.taken}
        known: list[RecordedStep | RecordedWait] = [*self.steps.values(), *self.waits.values()]
        return [entry.key for entry in sorted(known, key=lambda entry: entry.position) if entry.key not in asked]

    # Steps

    def recall(self, key: str, wish: StepWish) -> Begun | None:
        if wish.effect == "transactional":
            if not self.is_own_thread:
                self._stop(
                    "thread", key, f"step {key!r} runs in a thread of its own, which has another database session"
                )
            return None
        known = self.steps.get(key)
        if known and known.status == Step.Status.DONE:
            self._note(key, wish.effect, "journal")
            return Begun(key, wish, is_recorded=True, output=known.output)
        if known and known.status == Step.Status.FAILED and self._is_final(known):
            self._note(key, wish.effect, "journal")
            raise known.failure
        return self._stop(
            "call",
            key,
            f"step {key!r} would now be called, and no journal says what came of it",
            effect=wish.effect,
            arguments=shown(wish.arguments),
        )

    def _is_final(self, known: RecordedStep) -> bool:
        return known.effect == Step.Effect.AT_MOST_ONCE or known.position < self.last

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self._body.end()
        try:
            with transaction.atomic():
                yield
                connection.check_constraints()
        except Exception:
            self._body.begin()
            raise
        self._body.begin()

    def perform(self, begun: Begun, body: Callable[[], Any]) -> Any:
        seconds = begun.wish.seconds
        if seconds is None or threading.current_thread() is not threading.main_thread():
            return super().perform(begun, body)
        return super().perform(begun, lambda: _within(seconds, begun.key, body))

    def check(self, left: Effects) -> None:
        effects.check(self.claim, left)

    def done(self, begun: Begun, output: Any) -> None:
        self._note(begun.key, begun.wish.effect, "done")

    def fail(self, begun: Begun, error: Exception) -> Exception:
        if obstacle := obstacle_of(error):
            self._stop("lock", begun.key, f"step {begun.key!r}: {obstacle}")
        permanent = as_permanent(error)
        return super().fail(begun, permanent if isinstance(permanent, Exception) else error)

    def failed(self, begun: Begun, error: StepFailed) -> None:
        self._note(begun.key, begun.wish.effect, "failed")
        if not error.permanent and begun.wish.retries:
            self.stop(Retry(f"{error}; it would be tried again, {begun.wish.retries} times at most"))

    # Values and waits

    def recall_value(self, place: Place, key: str, draw: Callable[[], Any]) -> Any:
        known = self.steps.get(key)
        # What the agent keeps between its runs is today's: a step of today's is about to write it.
        if known and known.effect == Step.Effect.VALUE and not place.name.startswith(STATES):
            self._note(key, "value", "journal")
            return known.output
        self._note(key, "value", "drawn")
        return draw()

    def answer(self, key: str, wish: WaitWish) -> Any:
        known = self.waits.get(key)
        if known is None or not known.is_over or not known.fits(wish):
            self._stop("wait", key, f"it would now wait for {wanted(wish)}", effect="wait", arguments=_asked(wish))
        self._note(key, "wait", "journal")
        if known.kind == Wait.Kind.CHILDREN and known.status == Wait.Status.DONE:
            ends = self.steps.get(f"results of {key}")
            return [Ended(**end) for end in (ends.output if ends else recorded.ended(known.children))]
        return known.result()

    # The body

    @contextmanager
    def body(self) -> Iterator[None]:
        """Within, what is no transactional step may only read."""
        self._body.begin()
        try:
            yield
        finally:
            self._body.end()

    def _note(self, key: str, kind: str, how: str) -> None:
        self.taken.append(Taken(key=key, kind=kind, how=how))

    def _stop(self, kind: str, key: str, said: str, *, effect: str = "", arguments: Any = None) -> NoReturn:
        self.stop(Stopped(Stop(kind=kind, key=key, said=said, effect=effect, arguments=arguments)))


class ReadOnly:
    """PostgreSQL's own refusal of writes, in a savepoint: the only way to have it end within a transaction."""

    def __init__(self) -> None:
        self._savepoint: str | None = None

    def begin(self) -> None:
        self._savepoint = transaction.savepoint()
        execute("SET LOCAL transaction_read_only = on")

    def end(self) -> None:
        if self._savepoint:
            transaction.set_rollback(False)  # what broke within ends with it
            transaction.savepoint_rollback(self._savepoint)
            transaction.savepoint_commit(self._savepoint)
            self._savepoint = None


def obstacle_of(error: BaseException) -> str:
    """What of the shadow run's own limits an error is about; empty where it is the agent's."""
    seen: BaseException | None = error
    while seen is not None:
        match getattr(seen, "sqlstate", None):
            case "55P03":
                return "somebody else holds a lock on a row that it needs; a shadow run waits for one second"
            case "57014":
                return "a statement took longer than a shadow run may"
        seen = seen.__cause__ or seen.__context__
    return ""


def wanted(wish: WaitWish) -> str:
    """What a wait is for, in words."""
    match wish:
        case TimeWish():
            return f"the time to come: {wish.until:%Y-%m-%d %H:%M:%S %Z}" if wish.until else _span(wish.duration)
        case EventWish():
            having = (
                f" with {', '.join(f'{path} = {value!r}' for path, value in wish.match.items())}" if wish.match else ""
            )
            return (
                f"an event {wish.type}{f' from {wish.source}' if wish.source else ''}{having}{_at_most(wish.timeout)}"
            )
        case ApprovalWish():
            return f"an approval: {wish.question}{_at_most(wish.expires)}"
        case ChildrenWish():
            return f"{len(wish.children)} child runs{_at_most(wish.timeout)}"


def _asked(wish: WaitWish) -> Any:
    if isinstance(wish, ApprovalWish):
        return shown([wish.arguments])[0]
    return shown([dict(wish.match)])[0] if isinstance(wish, EventWish) else None


def _span(duration: Any) -> str:
    return in_words(duration) if duration else "no time"


def _at_most(duration: Any) -> str:
    return f", at most {in_words(duration)}" if duration else ""


def _within(seconds: float, key: str, body: Callable[[], Any]) -> Any:
    try:
        with deadline(seconds, lambda limit: StepTimedOut(f"step {key!r} took longer than its timeout of {limit:g} s")):
            return body()
    except StepTimedOut as error:
        raise TimeoutError(str(error)) from error
