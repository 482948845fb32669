"""The store of a shadow run's journal: transactional steps run in savepoints of the transaction that is rolled back. The original
run's journal answers outside calls and waits; without an answer, the shadow run stops there.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection, transaction

from agents.guards.storable import shown
from agents.journal.ends import Interrupted
from agents.journal.entries import RESULTS, VALUE, NewWait, RecordedStep, RecordedWait, StepEntry, sought_by
from agents.journal.in_memory import Nesting
from agents.journal.protocol import (
    ApprovalRequest,
    BudgetRequest,
    ChildrenRequest,
    EventRequest,
    ModelRequest,
    SessionRequest,
    StepRequest,
    TimeRequest,
    WaitRequest,
)
from agents.journal.store import Store
from agents.kernel.durations import in_words
from agents.kernel.effects import Effects
from runs.attempt.deadline import step_deadline
from runs.attempt.effects import check
from runs.attempt.failure import as_permanent
from runs.claim import Claim
from runs.db.sql import execute
from runs.durable import journal_rows
from runs.models import Step

READ_NOW = ("state ", "note ", "notes#")  # prefixes of the names of values read from the agent's state and memory


@dataclass(frozen=True, kw_only=True)
class Stop:
    """The point where a shadow run cannot go on: a call, a wait, a lock, its time limit, or a thread."""

    kind: str
    said: str
    key: str = ""
    effect: str = ""
    arguments: Any = None


@dataclass(frozen=True, kw_only=True)
class Taken:
    """An entry that today's code requested: a step, a value or a wait. `how`: done, journal, drawn or failed."""

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
    keeps_turns = False  # a shadow run holds no session

    def __init__(self, claim: Claim, origin: UUID | None) -> None:
        steps, waits = journal_rows.read(origin) if origin else ([], [])
        self.claim = claim
        self.agent = claim.agent
        self.max_output = settings.WAKEFUL_MAX_OUTPUT
        self.max_entries = sys.maxsize  # its entries are not stored
        self.steps = {step.key: step for step in steps}
        self.waits = {wait.key: wait for wait in waits}
        self.left = Effects()  # of the steps that ran
        self.taken: list[Taken] = []
        self._body = ReadOnly()
        self._outside = Nesting()

    @property
    def not_asked(self) -> list[str]:
        """Entries of the original's journal that today's code did not ask for."""
        asked = {entry.key for entry in self.taken} | {f"{RESULTS}{entry.key}" for entry in self.taken}
        known: list[RecordedStep | RecordedWait] = [*self.steps.values(), *self.waits.values()]
        return [entry.key for entry in sorted(known, key=lambda entry: entry.position) if entry.key not in asked]

    # What the original's journal answers

    def step(self, key: str, request: StepRequest) -> RecordedStep | None:
        known = self.steps.get(key)
        if request.effect == "transactional" or (known and known.status == Step.Status.STARTED):
            return None
        return known

    def value(self, key: str) -> RecordedStep | None:
        known = self.steps.get(key)
        # The agent's state and memory are read now, because steps of this shadow run write them.
        if known and (known.effect != Step.Effect.VALUE or key.startswith(READ_NOW)):
            known = None
        if not key.startswith(RESULTS):
            self._note(key, "value", "journal" if known else "drawn")
        return known

    def wait(self, key: str, request: WaitRequest) -> RecordedWait | None:
        known = self.waits.get(key)
        return known if known and known.is_over and known.sought == sought_by(request) else None

    def recalled(self, key: str, kind: str) -> None:
        self._note(key, kind, "journal")

    def answer(self, wait: NewWait) -> Stopped:
        return stopped(
            "wait",
            wait.key,
            f"it would now wait for {wanted(wait.request)}",
            effect="wait",
            arguments=_asked(wait.request),
        )

    # Steps

    def obstacle(self, key: str, request: StepRequest) -> Stopped | None:
        if request.effect != "transactional":
            return stopped(
                "call",
                key,
                f"step {key!r} would be called now, and no journal has its outcome",
                effect=request.effect,
                arguments=shown(request.arguments),
            )
        if not self._outside.is_own_thread:
            said = f"step {key!r} runs in another thread, which has another database session"
            return stopped("thread", key, said)
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

    def write(self, entries: Sequence[StepEntry], effects: Effects, *, at: str) -> bool:
        check(self.claim, effects)
        connection.check_constraints()
        self.left.extend(effects)
        return self.commit(entries, effects, at=at)

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
            return stopped("lock", key, f"step {key!r}: {obstacle}")
        return as_permanent(error)

    # The body

    @contextmanager
    def body(self) -> Iterator[None]:
        """Inside the block, only transactional steps may write."""
        self._outside = Nesting()
        self._body.begin()
        try:
            yield
        finally:
            self._body.end()

    def _note(self, key: str, kind: str, how: str) -> None:
        self.taken.append(Taken(key=key, kind=kind, how=how))


def stopped(kind: str, key: str, said: str, *, effect: str = "", arguments: Any = None) -> Stopped:
    return Stopped(Stop(kind=kind, key=key, said=said, effect=effect, arguments=arguments))


class ReadOnly:
    """Lets PostgreSQL refuse writes. It uses a savepoint, the only way to end the refusal within a transaction."""

    def __init__(self) -> None:
        self._savepoint: str | None = None

    def begin(self) -> None:
        self._savepoint = transaction.savepoint()
        execute("SET LOCAL transaction_read_only = on")

    def end(self) -> None:
        if self._savepoint:
            transaction.set_rollback(False)  # an error within ends with the savepoint
            transaction.savepoint_rollback(self._savepoint)
            transaction.savepoint_commit(self._savepoint)
            self._savepoint = None


def obstacle_of(error: BaseException) -> str:
    """Which limit of the shadow run caused an error; empty if the agent caused it."""
    seen: BaseException | None = error
    while seen is not None:
        match getattr(seen, "sqlstate", None):
            case "55P03":
                return "another session locks a row that it needs; a shadow run waits for one second"
            case "57014":
                return "a statement took longer than a shadow run allows"
        seen = seen.__cause__ or seen.__context__
    return ""


def wanted(request: WaitRequest) -> str:
    """A description of what the wait waits for."""
    match request:
        case TimeRequest(until=datetime() as until):
            return f"the time to come: {until:%Y-%m-%d %H:%M:%S %Z}"
        case TimeRequest():
            return in_words(request.duration) if request.duration else "no time"
        case EventRequest():
            values = ", ".join(f"{path} = {value!r}" for path, value in request.match.items())
            source = f" from {request.source}" if request.source else ""
            return f"an event {request.type}{source}{f' with {values}' if values else ''}{_at_most(request.timeout)}"
        case ApprovalRequest():
            return f"an approval: {request.question}{_at_most(request.expires)}"
        case ChildrenRequest():
            return f"{len(request.children)} child runs{_at_most(request.timeout)}"
        case BudgetRequest():
            return f"room in the {request.reason}"
        case SessionRequest():
            return f"session {request.session}"
        case ModelRequest():
            return request.reason


def _asked(request: WaitRequest) -> Any:
    if isinstance(request, ApprovalRequest):
        return shown([request.arguments])[0]
    return shown([dict(request.match)])[0] if isinstance(request, EventRequest) else None


def _at_most(duration: Any) -> str:
    return f", at most {in_words(duration)}" if duration else ""
