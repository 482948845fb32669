"""Evaluate expressions in a helper process with limits of time and memory, so that no expression can stop this process.

The CEL library cannot be interrupted, holds the GIL while it evaluates, and ends the process on a stack overflow. So
expressions whose cost may be more than linear, and all expressions of a web process, are evaluated in a small helper process.
The kernel ends it at the limit, and it is started again. Its end is the answer for one trigger and one event; the event's
other triggers are evaluated in a new process.
"""

import atexit
import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from django.conf import settings

from runs.processes import isolation
from runs.processes.frames import receive, send
from triggers.matching.expressions.cel import MISSING, ExpressionAnswer, Question
from triggers.matching.expressions.evaluator_process import HELLO

PROCESS = "triggers.matching.expressions.evaluator_process"
START_WITHIN = 60.0  # seconds
PATIENCE = 20.0  # multiple of the processor time, in wall-clock time, because the machine may be busy
# After REDUCED_AFTER overruns within WITHIN seconds on events of one size, a trigger gets REDUCED of the time; after REFUSED_AFTER
# it is not evaluated on them.
REDUCED_AFTER, REFUSED_AFTER, WITHIN = 3, 10, 60.0
REDUCED = 0.1
REMEMBERED = 1000  # triggers that overran


class EvaluatorUnavailable(OSError):
    """The helper process cannot be started; this is not the fault of an event."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Seconds of processor time on one event: for the expressions of each trigger, and of all triggers together."""

    each: float
    total: float

    @classmethod
    def from_settings(cls) -> "Limits":
        return cls(each=settings.WAKEFUL_MATCH_TIME.total_seconds(), total=settings.WAKEFUL_MATCH_TOTAL.total_seconds())


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The event in question: its envelope, its data as JSON text, and the reason if the data must not be read."""

    envelope: Mapping[str, Any]
    data: str = "null"
    without_data: str = ""


class _Ended(Exception):
    """The helper has ended; `silent`: it was ended because it did not answer in time."""

    def __init__(self, silent: bool = False) -> None:
        super().__init__()
        self.silent = silent


@dataclass
class Evaluator:
    """One helper process, started on first use; `is_nice`: with a lower priority. Use it as a context manager, or call `close`; it
    also ends with its parent. Thread-safe."""

    is_nice: bool = False

    process: "subprocess.Popen[bytes] | None" = None
    connection: socket.socket | None = None
    owner: int = 0  # the process that started it: a forked process must not use its parent's helper
    overruns: dict[tuple[str, int], deque[float]] = field(default_factory=dict)
    turn: threading.RLock = field(default_factory=threading.RLock)

    def __enter__(self) -> "Evaluator":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._end()

    def answers(
        self, subject: Subject, questions: Sequence[Question], limits: Limits | None = None
    ) -> list[ExpressionAnswer]:
        """An answer to each question. A question that costs too much or ends the process gets an answer with an error.
        Raises EvaluatorUnavailable."""
        with self.turn:
            return self._answers(subject, questions, limits or Limits.from_settings())

    def fields(self, subject: Subject, paths: Sequence[Sequence[str]]) -> list[Any]:
        """The values at these paths of the event, MISSING, or None for values that no literal equals. If the process ends, all are
        MISSING. Raises EvaluatorUnavailable."""
        limits = Limits.from_settings()
        with self.turn:
            try:
                found = self._begin(subject, [], limits.each, limits.total, paths)
            except _Ended:
                self._end()
                return [MISSING] * len(paths)
        return [one[0] if one else MISSING for one in found]

    def _answers(self, subject: Subject, questions: Sequence[Question], limits: Limits) -> list[ExpressionAnswer]:
        found: list[ExpressionAnswer] = []
        left, lost = limits.total, False
        while len(found) < len(questions):
            if left <= 0:
                break
            if self._overruns_of(questions[len(found)], subject) >= REFUSED_AFTER:
                found.append(_over_time_again())
                continue
            together, each = self._together(questions[len(found) :], limits, subject)
            used = 0.0
            try:
                for answer, until_now in self._ask(subject, together, each, left):
                    used = until_now
                    if answer is None:
                        return found + [_over_total(limits)] * (len(questions) - len(found))
                    found.append(answer)
                    lost = False
                left -= used
            except _Ended as ended:
                how = self._end()
                left -= used + each
                if how == -signal.SIGPROF:
                    self._count_overrun(questions[len(found)], subject)
                    found.append(_over_time(each))
                elif lost:
                    found.append(_lost(how, ended.silent))
                    lost = False
                else:
                    lost = True  # it may have been killed from outside: try once more
        return found + [_over_total(limits)] * (len(questions) - len(found))

    def _together(
        self, questions: Sequence[Question], limits: Limits, subject: Subject
    ) -> tuple[Sequence[Question], float]:
        """The leading questions that have the same time limit, and that limit."""

        def is_reduced(question: Question) -> bool:
            return self._overruns_of(question, subject) >= REDUCED_AFTER

        reduced = is_reduced(questions[0])
        same = list(
            takewhile(
                lambda question: (
                    is_reduced(question) == reduced and self._overruns_of(question, subject) < REFUSED_AFTER
                ),
                questions,
            )
        )
        return same, limits.each * (REDUCED if reduced else 1)

    def _ask(
        self, subject: Subject, questions: Sequence[Question], each: float, total: float
    ) -> Iterator[tuple[ExpressionAnswer | None, float]]:
        """The answers one by one, with the processor time used so far; None: the time of all triggers is used up."""
        self._begin(subject, questions, each, total)
        for _ in questions:
            found, used = self._reply()
            yield ExpressionAnswer(**found) if found else None, used

    def _begin(
        self, subject: Subject, questions: Sequence[Question], each: float, total: float, paths: Sequence[Any] = ()
    ) -> Any:
        """Ask; returns the values at the paths as soon as the event is loaded."""
        connection = self._connected()
        connection.settimeout(PATIENCE * max(each, 0.5) + 5)
        request = {
            "event": subject.envelope,
            "without_data": subject.without_data,
            "questions": [(one.filter, one.key, dict(one.input), list(one.parts)) for one in questions],
            "paths": paths,
            "seconds": each,
            "total": total,
        }
        try:
            send(connection, json.dumps(request).encode())
            send(connection, subject.data.encode())
        except TimeoutError:
            raise _Ended(silent=True) from None
        except ConnectionError:
            raise _Ended from None
        return self._reply()

    def _reply(self) -> Any:
        if self.connection is None:
            raise _Ended
        try:
            reply = receive(self.connection)
        except TimeoutError:
            raise _Ended(silent=True) from None
        except ConnectionError:
            raise _Ended from None
        if reply is None:
            raise _Ended
        return json.loads(reply)

    def _connected(self) -> socket.socket:
        if self.connection is not None and self.owner == os.getpid():
            return self.connection
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                isolation.command_of(PROCESS, theirs.fileno(), nice=10 if self.is_nice else 0),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=isolation.environment(),
                close_fds=True,
            )
        ours.settimeout(START_WITHIN)
        self.connection, self.owner = ours, os.getpid()
        try:
            hello = receive(ours)
        except (TimeoutError, ConnectionError):
            hello = None
        if hello != HELLO:
            raise EvaluatorUnavailable(f"the evaluator process did not start: exit status {self._end()}")
        return ours

    def _end(self) -> int:
        """End the helper; its exit status, negative for a signal."""
        process, connection = self.process, self.connection
        self.process = self.connection = None
        if connection is not None:
            connection.close()
        if process is None or self.owner != os.getpid():
            return 0
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(0.2 if process.poll() is None else 0)  # it is ending already, or it is frozen or busy
        process.kill()
        return process.wait()

    def _overruns_of(self, question: Question, subject: Subject) -> int:
        """How often the expression overran lately on events of about this size."""
        if not self.overruns:
            return 0
        since = time.monotonic() - WITHIN
        return sum(at > since for at in self.overruns.get(_alike(question, subject), ()))

    def _count_overrun(self, question: Question, subject: Subject) -> None:
        if len(self.overruns) >= REMEMBERED:
            self.overruns.clear()
        self.overruns.setdefault(_alike(question, subject), deque(maxlen=REFUSED_AFTER)).append(time.monotonic())


def _alike(question: Question, subject: Subject) -> tuple[str, int]:
    """A large payload must not cost a trigger its small events."""
    return repr(question), len(subject.data).bit_length()


def _unaffordable(error: str) -> ExpressionAnswer:
    return ExpressionAnswer(error=error, is_unaffordable=True)


def _over_time(seconds: float) -> ExpressionAnswer:
    return _unaffordable(
        f"its expressions took longer than {seconds:g} s of processor time on this event "
        "(WAKEFUL_MATCH_TIME; a tenth of it after repeated overruns)"
    )


def _over_time_again() -> ExpressionAnswer:
    return _unaffordable(
        f"its expressions took too long on {REFUSED_AFTER} events of this size within {WITHIN:g} s, so they are not evaluated on "
        "further ones for as long (WAKEFUL_MATCH_TIME)"
    )


def _over_total(limits: Limits) -> ExpressionAnswer:
    return _unaffordable(
        f"the expressions of all triggers took longer than {limits.total:g} s of processor time on this event "
        "(WAKEFUL_MATCH_TOTAL)"
    )


def _lost(status: int, silent: bool) -> ExpressionAnswer:
    how = "did not answer in time" if silent else f"ended with {_status(status)}"
    return _unaffordable(f"its expressions cannot be evaluated on this event: the evaluator process {how}, twice")


def _status(status: int) -> str:
    return signal.Signals(-status).name if status < 0 else f"exit status {status}"


shared = Evaluator()  # of the dispatcher
atexit.register(shared.close)
