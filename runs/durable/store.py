"""The journal of a durable run in the database; each commit of entries ends with the fence."""

import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import structlog
from django.conf import settings
from django.db import DatabaseError, connection, transaction

from agents.journal.budget import Cost, Limits, Refusal, Reserved, Used
from agents.journal.ends import Interrupted, Lost, Released
from agents.journal.entries import NewWait, RecordedStep, StepEntry
from agents.journal.protocol import EventRequest, TimeRequest
from agents.journal.store import Busy, Store
from agents.kernel.effects import Effects
from agents.kernel.log_lines import LogLines
from runs.attempt.clean_session import reset_settings
from runs.attempt.deadline import seconds_left, step_deadline
from runs.attempt.effects import rows_of
from runs.attempt.failure import as_permanent
from runs.budgets import wake
from runs.budgets.reserve import Reservations
from runs.calls.rows import is_better_left
from runs.claim import Claim
from runs.db.outage import CONNECTION_ERRORS
from runs.db.session import writing
from runs.durable import journal_rows, progress, sessions
from runs.durable.early import find_early
from runs.durable.entry import entry_of
from runs.durable.journal_rows import RecordedWait
from runs.exceptions import RunLost
from runs.failpoints import failpoint
from runs.ports import ports
from runs.transitions.entries import WaitEntry

log = structlog.get_logger(__name__)

AT_ONCE = 1.0  # seconds since the claim
SHORT = timedelta(milliseconds=20)  # of a sleep; to release the process and to claim the run again takes about as long


class DatabaseStore(Store):
    def __init__(self, claim: Claim, steps: Sequence[RecordedStep], waits: Sequence[RecordedWait]) -> None:
        self.claim = claim
        self.log_lines = LogLines(is_kept=False)
        self.agent = claim.agent
        self.max_output = settings.WAKEFUL_MAX_OUTPUT
        self.max_entries = settings.WAKEFUL_MAX_ENTRIES
        self.steps = {step.key: step for step in steps}
        self.waits = {wait.key: wait for wait in waits}
        self.reservations = Reservations(claim)
        self._answered: WaitEntry | None = None  # to be written with the next commit
        self.taken = [wait.event_id for wait in waits if wait.event_id]
        self.has_progressed = False
        self.intents: set[str] = set()  # steps of this claim whose outcome is unknown
        self.has_journal = claim.has_journal  # as the run's row has it
        self.is_tainted = self.is_known_tainted = claim.is_tainted

    @property
    def progressed_claim(self) -> Claim:
        """The claim; its attempts count from 0 after the commit of a step."""
        return replace(self.claim, attempt=0) if self.has_progressed else self.claim

    @contextmanager
    def transaction(self, key: str) -> Iterator[None]:
        is_committed = False

        def committed() -> None:
            nonlocal is_committed
            is_committed = True

        try:
            with writing():
                transaction.on_commit(committed)  # before the hooks of the body
                yield
        except Exception:
            if not is_committed:
                raise
            log.warning("step.error_after_commit", run=str(self.claim.run_id), step=key, exc_info=True)

    def write(self, entries: Sequence[StepEntry], effects: Effects, *, at: str) -> bool:
        reset_settings(self.claim.session_name)
        return self._write(entries, effects, at)

    def commit(self, entries: Sequence[StepEntry], effects: Effects, *, at: str) -> bool:
        for is_last in (False, True):
            try:
                with writing():
                    return self._write(entries, effects, at)
            except RunLost:
                if is_last or not any(entry.status == "started" for entry in entries):
                    raise
                # The run stops here, so the step is not called, and nothing was written.
                if progress.is_wanted_back(self.claim):
                    return True
        raise AssertionError("unreachable")

    def answer(self, wait: NewWait) -> RecordedWait | None:
        """Of a short sleep, after it, and of a wait for an event that is there already: the run keeps its process, and is neither
        claimed nor replayed again. Not later than AT_ONCE: after a wait that releases its run, the body has all of its time again."""
        if not wait.is_new or time.monotonic() - self.claim.asked > min(AT_ONCE, self.claim.policy.timeout / 10):
            return None
        match wait.request:
            case TimeRequest(duration=timedelta() as duration) if timedelta() < duration <= SHORT:
                if duration >= ports.loop_spacing():
                    return None  # its end begins a new causal chain
                time.sleep(duration.total_seconds())
                entry = replace(entry_of(wait), duration=timedelta())  # it is written when it is over
            case EventRequest() as request if self.claim.event_ids and (found := self._find_early(request)):
                entry = replace(entry_of(wait), event_id=found)
                self.taken.append(found)
            case _:
                return None
        self._answered = entry
        self.waits[wait.key] = recorded = journal_rows.recorded(entry)
        return recorded

    def _find_early(self, request: EventRequest) -> UUID | None:
        after_event, root = self.claim.event_ids[0], self.claim.root_id
        return find_early(self.claim.run_id, request, after_event=after_event, root=root, taken=self.taken)

    def _write(self, entries: Sequence[StepEntry], effects: Effects, at: str) -> bool:
        rows = rows_of(self.claim, effects)
        answered, log_chunk = self._answered, self.log_lines.chunk()
        is_progress = answered is not None or any(entry.is_progress for entry in entries)
        is_tainted = self.is_tainted
        if is_tainted and not self.is_known_tainted:
            ports.taint_changes(self.claim.run_id)
        is_wanted_back = progress.commit(
            self.claim,
            entries,
            rows,
            at=at,
            answered=answered,
            log=log_chunk,
            is_first_progress=is_progress and not self.has_progressed,
            has_journal=self.has_journal,
            is_newly_tainted=is_tainted and not self.is_known_tainted,
        )

        def committed() -> None:
            if self._answered is answered:
                self._answered = None
            if log_chunk:
                self.log_lines.forget(log_chunk)
            self.has_progressed |= is_progress
            self.has_journal = True
            self.is_known_tainted |= is_tainted
            self.intents -= {entry.key for entry in entries}
            self.intents |= {entry.key for entry in entries if entry.status == "started"}

        transaction.on_commit(committed)
        return is_wanted_back

    def limits(self) -> Limits:
        return self.reservations.limits()

    def reserve(self, key: str, cost: Cost) -> Reserved | Refusal | None:
        return self.reservations.reserve(key, cost)

    def settle(self, reserved: Reserved, used: Used) -> None:
        """Settle the reservation. An error here does not prevent recording the answer: the reservation is booked as
        spent when the claim ends.
        """
        try:
            if self.reservations.settle(reserved, used):
                wake.wake_after_request()
        except DatabaseError:
            log.warning("budget.not_settled", run=str(self.claim.run_id), exc_info=True)

    def spend(self, cost: Cost) -> Refusal | None:
        return self.reservations.spend(cost)

    def hold(self, session: str) -> Busy | None:
        return sessions.hold(self.claim, session)

    def let_go(self, session: str) -> None:
        sessions.let_go(self.claim, session)

    def reason_to_stop(self) -> Interrupted | None:
        if not progress.is_wanted_back(self.claim):
            return None
        return Released("its worker stops, or its agent was stopped, before a request to a model")

    def leaves_requests(self) -> bool:
        return is_better_left(self.claim.run_id)

    def forget(self, key: str) -> None:
        progress.forget_intent(self.claim, key)
        self.intents.discard(key)

    def record_late(self, key: str, output: str, effects: Effects) -> None:
        progress.record_late(self.claim, key, output, effects, is_tainted=self.is_tainted)
        self.intents.discard(key)

    @property
    def in_transaction(self) -> bool:
        return connection.in_atomic_block

    @property
    def seconds_left(self) -> float | None:
        return seconds_left()

    def limit(self, key: str, seconds: float) -> AbstractContextManager[None]:
        return step_deadline(key, seconds)

    def explain(self, key: str, error: Exception) -> Exception | Interrupted:
        if isinstance(error, RunLost) or _is_gone(error):
            return Lost(error)
        return as_permanent(error)

    def reach(self, point: str) -> None:
        failpoint(point)

    def leave_thread(self) -> None:
        connection.close()


def _is_gone(error: Exception) -> bool:
    """Is the database gone, so that it is unknown what was committed?"""
    return isinstance(error, CONNECTION_ERRORS) and (connection.connection is None or not connection.is_usable())
