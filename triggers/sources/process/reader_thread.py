"""The thread that reads one source. It never writes to the database: it hands each batch over, and waits until it is recorded.

It reads only while its process's lease is valid by this host's clock, so that a process that was frozen does not read beside
the new owner.
"""

import queue
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from itertools import count
from typing import Any

import structlog
from django.db import connection

from agents.kernel.backoff import backoff
from agents.kernel.redaction import redacted
from triggers.sources.continuity import Marks
from triggers.sources.process.record import Mandate
from triggers.sources.runner import RETURNS_WITHIN, Assignment, Batch, Reader, Runner, SourceError

log = structlog.get_logger(__name__)

READ_WAIT = 2.0  # seconds that a read waits for a message
STAY_EVERY = 1.0
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # seconds between two connections after errors
TRIES = 5  # to record a batch
ERROR_CHARACTERS = 1000


class HandoverAnswer(Enum):
    """The outcome of a batch that was handed over."""

    RECORDED = "recorded"
    FAILED = "failed"
    NOT_OWNED = "not owned"


@dataclass(kw_only=True)
class Handover:
    """A batch for the process to record."""

    thread: "ReaderThread"
    batch: Batch
    answer: HandoverAnswer | None = None
    marks: Marks | None = None  # after it, if it is recorded
    error: str = ""  # why it has failed
    is_left: bool = False  # its thread reads it again, and does not wait for the answer any more


@dataclass(frozen=True, kw_only=True)
class Failure:
    """An error of the source, for its page."""

    thread: "ReaderThread"
    error: str
    remedy: str


class Ended(Exception):
    """The thread must not go on: its source has another owner, or other settings, or its process stops."""


class ReaderThread(threading.Thread):
    def __init__(
        self,
        mandate: Mandate,
        runner: Runner[Any],
        assign: Callable[[Any, Marks], Assignment[Any]],
        position: Any,
        marks: Marks,
        inbox: "queue.SimpleQueue[Handover | Failure]",
    ) -> None:
        super().__init__(name=f"source-{mandate.slug}", daemon=True)
        self.mandate = mandate
        self.runner = runner
        self.assign = assign  # from a position and marks; raises if settings or secret are invalid
        self.position, self.marks = position, marks
        self.inbox = inbox
        self.changed = threading.Condition()
        self.is_ended = False
        self.is_held = False
        self.valid_until = 0.0  # monotonic seconds; nothing is read before the process allows it
        self.called_at: float | None = None  # when the current call of the reader began
        self.failures = 0  # in a row
        self.is_over = False  # its source is disabled or deleted
        self.is_hurried = False  # there is something new at the source

    # Called by the process

    def end(self, *, is_over: bool = False) -> None:
        """`is_over`: its source is disabled or deleted."""
        with self.changed:
            self.is_ended, self.is_over = True, is_over or self.is_over
            self.changed.notify_all()

    def may_read(self, *, until: float, is_held: bool) -> None:
        """The lease is valid until then; `is_held`: but read nothing."""
        with self.changed:
            self.valid_until, self.is_held = until, is_held
            self.changed.notify_all()

    def hurry(self) -> None:
        """There is something new at the source: do not wait for the time of the next read."""
        with self.changed:
            self.is_hurried = True
            self.changed.notify_all()

    def answer(self, handover: Handover, answer: HandoverAnswer) -> None:
        with self.changed:
            if answer is HandoverAnswer.RECORDED and handover.batch.position is not None:
                self.position = handover.batch.position
            if answer is HandoverAnswer.RECORDED and handover.marks is not None:
                self.marks = handover.marks
            handover.answer = answer
            self.changed.notify_all()

    @property
    def hangs(self) -> bool:
        called_at = self.called_at
        return called_at is not None and time.monotonic() - called_at > READ_WAIT + RETURNS_WITHIN

    # The thread

    def run(self) -> None:
        with suppress(Ended):
            while True:
                self._sleep(None, self._is_valid)
                try:
                    self._serve()
                except Ended:
                    raise
                except Exception as error:
                    # The boundary of the thread: any error of a client library is one of its source.
                    self._report(error)
                    self._pause(error)

    def _serve(self) -> None:
        """Connect and read until an error or the end."""
        reader: Reader = self._call(lambda: self.runner.connect(self.assign(self.position, self.marks)))
        is_first = True  # it is handed over also if it is empty: the error of the last connection is over
        try:
            while True:
                self._stay_until(reader, lambda: not self.is_held and self._is_valid())
                batch: Batch = self._call(lambda: reader.read(self._read_wait()))
                if is_first or batch.says_something:
                    self._hand_over(reader, batch)
                if batch.failure:
                    raise batch.failure
                self.failures, is_first = 0, False
                if batch.messages or batch.receipt is not None:
                    self._call(lambda: reader.confirm(batch))  # noqa: B023  (called at once)
                self._stay(reader, batch.next_in.total_seconds())
        finally:
            with suppress(Exception):  # it may be broken
                if self.is_over:
                    self._call(reader.leave)
            with suppress(Exception):
                self._call(reader.close)

    def _is_valid(self) -> bool:
        return time.monotonic() < self.valid_until

    def _read_wait(self) -> float:
        return max(min(READ_WAIT, self.valid_until - time.monotonic()), 0.1)

    def _stay_until(self, reader: Reader, is_over: Callable[[], bool]) -> None:
        while not self._sleep(STAY_EVERY, is_over):
            self._call(reader.stay)

    def _stay(self, reader: Reader, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if self._sleep(min(left, STAY_EVERY), lambda: self.is_hurried):
                self.is_hurried = False
                reader.hurry()
                return
            self._call(reader.stay)

    def _hand_over(self, reader: Reader, batch: Batch) -> None:
        """Return when the batch is recorded. One that fails again and again is read again, after a pause: it may be another one then."""
        for number in count(1):
            handover = Handover(thread=self, batch=batch)
            self.inbox.put(handover)
            try:
                while not self._is_answered(handover):
                    self._call(reader.stay)
            except Exception:
                handover.is_left = True
                raise
            if handover.answer is HandoverAnswer.RECORDED:
                return  # and confirm it, also if this thread is to end
            if handover.answer is not HandoverAnswer.FAILED or self.is_ended:
                raise Ended
            if number == TRIES:
                raise SourceError(handover.error)
            self._sleep(STAY_EVERY)
            self._stay_until(reader, self._is_valid)

    def _is_answered(self, handover: Handover) -> bool:
        with self.changed:
            self.changed.wait_for(lambda: self.is_ended or handover.answer is not None, STAY_EVERY)
        return self.is_ended or handover.answer is not None

    def _report(self, error: Exception) -> None:
        self.failures += 1
        said = redacted(str(error).strip() or type(error).__name__)[:ERROR_CHARACTERS]
        if not isinstance(error, SourceError):
            said = f"{type(error).__name__}: {said}"
        remedy = error.remedy if isinstance(error, SourceError) else ""
        log.warning("source.failed", source=self.mandate.slug, error=said, failures=self.failures)
        self.inbox.put(Failure(thread=self, error=said, remedy=redacted(remedy)))

    def _pause(self, error: Exception) -> None:
        pause = backoff(FIRST_PAUSE, LONGEST_PAUSE, self.failures) * random.uniform(0.5, 1)  # noqa: S311
        if isinstance(error, SourceError) and error.retry_after:
            pause = max(pause, error.retry_after.total_seconds())
        self._sleep(pause)

    def _call(self, call: Callable[[], Any]) -> Any:
        self.called_at = time.monotonic()
        try:
            return call()
        finally:
            self.called_at = None
            connection.close()  # of this thread, if it was used: resting sources would take all that the database has

    def _sleep(self, seconds: float | None, is_over: Callable[[], bool] = lambda: False) -> bool:
        """Wait until it is over, or for so long; whether it is over. Raises Ended."""
        with self.changed:
            over = self.changed.wait_for(lambda: self.is_ended or is_over(), seconds)
            if self.is_ended:
                raise Ended
            return over
