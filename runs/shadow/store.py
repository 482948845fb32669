"""The store of a shadow run's journal: transactional steps are done, in savepoints of the one transaction that is rolled back;
calls to the outside and waits are answered by what the original run's journal says of them, or the shadow run stops there.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction

from agents.durations import in_words
from agents.effects import Effects
from agents.guards.storable import shown
from agents.journal.ends import Interrupted
from agents.journal.entries import RESULTS, VALUE, NewWait, RecordedStep, RecordedWait, StepEntry, sought_by
from agents.journal.memory import Nesting
from agents.journal.protocol import ApprovalWish, BudgetWish, ChildrenWish, EventWish, StepWish, TimeWish, WaitWish
from agents.journal.store import Store
from runs.attempt.deadline import step_deadline
from runs.attempt.effects import check
from runs.attempt.failure import as_permanent
from runs.claim import Claim
from runs.db.sql import execute
from runs.durable import recorded
from runs.models import Step

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


class Stopped(Interrupted):
    """A shadow run goes no further."""

    def __init__(self, stop: Stop) -> None:
        super().__init__(stop.said)
        self.stop = stop


class ShadowStore(Store):
    is_binding = False  # today's code may ask for other things, in another order

    def __init__(self, claim: Claim, origin: UUID | None) -> None:
        steps, waits = recorded.read(origin) if origin else ([], [])
        self.claim = claim
        self.agent = claim.agent
        self.max_output = settings.WAKEFUL_MAX_OUTPUT
        self.max_entries = sys.maxsize  # its entries are nowhere written down
        self.steps = {step.key: step for step in steps}
        self.waits = {wait.key: wait for wait in waits}
        self.left = Effects()  # by the steps that were done
        self.taken: list[Taken] = []
        self._body = ReadOnly()
        self._outside = Nesting()

    @property
    def not_asked(self) -> list[str]:
        """What the original's journal has, and today's code did not come to."""
        asked = {entry.key for entry in self.taken} | {f"{RESULTS}{entry.key}" for entry in self.taken}
        known: list[RecordedStep | RecordedWait] = [*self.steps.values(), *self.waits.values()]
        return [entry.key for entry in sorted(known, key=lambda entry: entry.position) if entry.key not in asked]

    # What the original's journal answers

    def step(self, key: str, wish: StepWish) -> RecordedStep | None:
        known = self.steps.get(key)
        if wish.effect == "transactional" or (known and known.status == Step.Status.STARTED):
            return None
        return known

    def value(self, key: str) -> RecordedStep | None:
        known = self.steps.get(key)
        # What the agent keeps between its runs is today's: a step of today's is about to write it.
        if known and (known.effect != Step.Effect.VALUE or key.startswith(STATES)):
            known = None
        if not key.startswith(RESULTS):
            self._note(key, "value", "journal" if known else "drawn")
        return known

    def wait(self, key: str, wish: WaitWish) -> RecordedWait | None:
        known = self.waits.get(key)
        return known if known and known.is_over and known.sought == sought_by(wish) else None

    def recalled(self, key: str, kind: str) -> None:
        self._note(key, kind, "journal")

    def answer(self, wait: NewWait) -> Stopped:
        return _stopped(
            "wait",
            wait.key,
            f"it would now wait for {wanted(wait.wish)}",
            effect="wait",
            arguments=_asked(wait.wish),
        )

    # Steps

    def obstacle(self, key: str, wish: StepWish) -> Stopped | None:
        if wish.effect != "transactional":
            return _stopped(
                "call",
                key,
                f"step {key!r} would now be called, and no journal says what came of it",
                effect=wish.effect,
                arguments=shown(wish.arguments),
            )
        if not self._outside.is_own_thread:
            said = f"step {key!r} runs in a thread of its own, which has another database session"
            return _stopped("thread", key, said)
        return None

    @contextmanager
    def transaction(self, key: str) -> Iterator[None]:
        self._body.end()
        try:
            with transaction.atomic():
                yield
        except Exception:
            self._body.begin()
            raise
        self._body.begin()

    def write(self, entries: Sequence[StepEntry], effects: Effects) -> bool:
        check(self.claim, effects)
        connection.check_constraints()
        self.left.extend(effects)
        return self.commit(entries, effects, at="")

    def commit(self, entries: Sequence[StepEntry], effects: Effects, *, at: str) -> bool:
        for entry in entries:
            if entry.effect != VALUE:
                self._note(entry.key, entry.effect, entry.status)
        return False

    @property
    def in_transaction(self) -> bool:
        return self._outside.is_left

    def limit(self, key: str, seconds: float) -> AbstractContextManager[None]:
        return step_deadline(key, seconds)

    def explain(self, key: str, error: Exception) -> Exception | Interrupted:
        if obstacle := obstacle_of(error):
            return _stopped("lock", key, f"step {key!r}: {obstacle}")
        return as_permanent(error)

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


def _stopped(kind: str, key: str, said: str, *, effect: str = "", arguments: Any = None) -> Stopped:
    return Stopped(Stop(kind=kind, key=key, said=said, effect=effect, arguments=arguments))


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
        case BudgetWish():
            return f"room in the {wish.reason}"


def _asked(wish: WaitWish) -> Any:
    if isinstance(wish, ApprovalWish):
        return shown([wish.arguments])[0]
    return shown([dict(wish.match)])[0] if isinstance(wish, EventWish) else None


def _span(duration: Any) -> str:
    return in_words(duration) if duration else "no time"


def _at_most(duration: Any) -> str:
    return f", at most {in_words(duration)}" if duration else ""
