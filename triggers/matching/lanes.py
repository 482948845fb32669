"""The lanes in which threads answer costly cases: see `slow_lane`."""

import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TypeVar
from uuid import UUID

from django.db import Error as DjangoDatabaseError
from django.db import close_old_connections, connection

from runs.db.listen import set_timeouts
from triggers.matching.expressions.cel import ExpressionAnswer, Question
from triggers.matching.expressions.evaluator import Evaluator, Limits
from triggers.matching.index import Index, Rule
from triggers.matching.match import Case, CasesOf, cases_of, field_of_event, subject_of, wanted_by
from triggers.matching.payload import NOTHING, UNREAD, Payload, read_payloads
from triggers.matching.pending import Identity, Item

T = TypeVar("T")
QUICK = 0.05  # seconds of processor time, of one trigger on an event
QUICK_LANES = 2
LARGEST_QUICK = 2**20  # bytes
PARSED_HERE = 2**18  # characters of JSON: a few milliseconds
MOST_SLOW = 1_000  # triggers that are remembered
SLOW_FOR = 60.0  # seconds


@dataclass(frozen=True, kw_only=True)
class Job:
    """Costly cases of an event. Without a payload, a lane reads it; with an `index`, it finds the cases with it."""

    item: Item
    cases: Sequence[Case] = ()
    payload: Payload | None = None
    index: Index | None = None
    cases_of: CasesOf = cases_of
    slow: frozenset[UUID] = frozenset()  # triggers that a quick lane leaves to the slow one


@dataclass(frozen=True, kw_only=True)
class Result:
    """`cases` and their answers. `wanted`: the triggers that may match, if the job was to find them. `over`: cases for the slow
    lane. `error`: why there are no answers."""

    job: Job
    cases: Sequence[Case] = ()
    answers: Sequence[ExpressionAnswer] = ()
    wanted: Sequence[Rule] = ()
    over: Sequence[Case] = ()
    error: Exception | None = None


@dataclass(kw_only=True)
class Known:
    """The cases of an event and the answers known so far."""

    item: Item
    listening: Sequence[Rule] | None = None  # of a large event: the rules that listened when `wanted` was requested
    wanted: Sequence[Rule] | None = None
    asked: dict[UUID, Question] = field(default_factory=dict)
    slow: set[UUID] = field(default_factory=set)  # triggers whose cases are in the slow lane
    answers: dict[UUID, ExpressionAnswer] = field(default_factory=dict)
    told: frozenset[UUID] = frozenset()  # triggers whose answers it has been dispatched with
    is_being_read: bool = False
    error: Exception | None = None
    is_held: bool = False
    behind: frozenset[UUID] = frozenset()  # triggers at which it waits for earlier events
    blocks: frozenset[UUID] = frozenset()  # triggers at which later events wait for it

    @property
    def is_running(self) -> bool:
        return self.error is None and (self.is_being_read or self.asked.keys() != self.answers.keys())

    @property
    def is_quick(self) -> bool:
        """Whether a quick lane works on the event."""
        return self.is_running and (self.is_being_read or not self.asked.keys() <= self.answers.keys() | self.slow)

    def has_news(self, blocked: Set[UUID]) -> bool:
        """Whether the event can be dispatched to more triggers before the slow lane has finished it."""
        news = ((self.answers.keys() - self.told) | self.behind) - (self.behind & blocked)
        return bool(news) and not (self.is_quick or self.item.is_resumption)

    def answer(self, case: Case) -> ExpressionAnswer | None:
        return self.answers.get(case.rule.id) if self.asked.get(case.rule.id) == case.question else None

    def is_asked(self, case: Case) -> bool:
        return self.asked.get(case.rule.id) == case.question


class Lanes:
    """The quick lanes and the slow one. Used by the dispatcher's thread alone: it puts jobs, and their results go into what is
    known of its events."""

    def __init__(self, known: Mapping[Identity, Known]) -> None:
        self.known = known
        self.results: queue.SimpleQueue[Result] = queue.SimpleQueue()
        self.quick = Lane(self.results, threads=QUICK_LANES, is_quick=True)
        self.slow = Lane(self.results, threads=1, is_quick=False)
        self.slow_until: dict[UUID, dict[int, float]] = {}

    def submit(self, job: Job, *, is_slow: bool) -> bool:
        (self.slow if is_slow else self.quick).put(job)
        return not is_slow

    def is_slow(self, trigger_id: UUID, item: Item) -> bool:
        now = time.monotonic()
        sizes = self.slow_until.get(trigger_id, {})
        return any(until > now and size <= item.bytes.bit_length() for size, until in sizes.items())

    def wait(self, asked: set[Identity], seconds: float) -> None:
        until = time.monotonic() + seconds
        while any(known.is_quick for identity in asked if (known := self.known.get(identity))):
            left = until - time.monotonic()
            if left <= 0:
                return
            try:
                self._take(self.results.get(timeout=left))
            except queue.Empty:
                return

    def collect(self) -> None:
        while not self.results.empty():
            self._take(self.results.get())

    def _take(self, result: Result) -> None:
        known = self.known.get(result.job.item.identity)
        if known is None:
            return
        if result.error:
            known.error = result.error
            return
        if result.job.index:
            known.is_being_read, known.wanted = False, list(result.wanted)
            known.asked, known.answers = {case.rule.id: case.question for case in (*result.cases, *result.over)}, {}
        for case, answer in zip(result.cases, result.answers, strict=True):
            if known.is_asked(case):
                known.answers[case.rule.id] = answer
        over = [case for case in result.over if known.is_asked(case)]
        known.slow |= {case.rule.id for case in over}
        for case in over:
            self._note_slow(case.rule.id, result.job.item)
        if over:
            payload = None if result.job.item.is_large else result.job.payload
            self.submit(Job(item=result.job.item, cases=over, payload=payload), is_slow=True)

    def _note_slow(self, trigger_id: UUID, item: Item) -> None:
        if len(self.slow_until) >= MOST_SLOW:
            self.slow_until.clear()
        self.slow_until.setdefault(trigger_id, {})[item.bytes.bit_length()] = time.monotonic() + SLOW_FOR

    def close(self) -> None:
        self.quick.close()
        self.slow.close()


class Lane:
    """Threads that do jobs in turn, each with an evaluator and a database session of its own. They start with the first job, and
    end with the process."""

    def __init__(self, results: "queue.SimpleQueue[Result]", *, threads: int, is_quick: bool) -> None:
        self.jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()  # None: end
        self.results, self.is_quick = results, is_quick
        name = f"wakeful-{'quick' if is_quick else 'slow'}-matching"
        self.threads = [threading.Thread(target=self._run, name=name, daemon=True) for _ in range(threads)]

    def put(self, job: Job) -> None:
        self.jobs.put(job)
        for thread in self.threads:
            if thread.ident is None:
                thread.start()

    def close(self) -> None:
        for thread in self.threads:
            if thread.is_alive():
                self.jobs.put(None)
        for thread in self.threads:
            if thread.ident is not None:
                thread.join()

    def _run(self) -> None:
        with Evaluator(is_nice=not self.is_quick) as evaluator:
            while (job := self.jobs.get()) is not None:
                try:
                    result = self._do(job, evaluator)
                except Exception as error:
                    # The boundary of the thread: the dispatcher raises the error, and retries.
                    if isinstance(error, DjangoDatabaseError):
                        connection.close()
                    result = Result(job=job, error=error)
                self.results.put(result)
        connection.close()

    def _do(self, job: Job, evaluator: Evaluator) -> Result:
        payload = _read(job.item) if job.payload is None else job.payload
        wanted = _wanted(job.item, job.index, payload, evaluator) if job.index else []
        found_here = job.cases_of(job.item, wanted)
        cases = [case for case in found_here if case.is_costly(UNREAD)] if job.index else job.cases
        left, cases = parted(cases, lambda case: self.is_quick and case.rule.id in job.slow)
        limits = Limits.from_settings()
        if self.is_quick:
            limits = Limits(each=min(QUICK, limits.each), total=min(5 * QUICK, limits.total))
        answers = (
            evaluator.answers(subject_of(job.item, payload), [case.question for case in cases], limits) if cases else []
        )
        # Data over the limit is an answer; too little time is one in the slow lane only.
        can_be_over = self.is_quick and not payload.without_data
        over, found = parted(zip(cases, answers, strict=True), lambda one: can_be_over and one[1].is_unaffordable)
        return Result(
            job=job,
            cases=[case for case, _ in found],
            answers=[answer for _, answer in found],
            wanted=wanted,
            over=[*left, *(case for case, _ in over)],
        )


def _wanted(item: Item, index: Index, payload: Payload, evaluator: Evaluator) -> list[Rule]:
    """The triggers that may match the event. The parser holds the interpreter, so large payloads are parsed in the
    evaluator's process.
    """
    if payload.without_data or len(payload.text) <= PARSED_HERE:
        return wanted_by(item, index, payload)
    paths = [path for path in index.paths(item.source, item.type) if path[0] == "data"]
    found = dict(zip(paths, evaluator.fields(subject_of(item, payload), paths), strict=True)) if paths else {}
    return wanted_by(
        item, index, fields=lambda path: found[path] if path in found else field_of_event(item, NOTHING, path)
    )


def parted(all_: Iterable[T], is_first: Callable[[T], bool]) -> tuple[list[T], list[T]]:
    first, others = list[T](), list[T]()
    for one in all_:
        (first if is_first(one) else others).append(one)
    return first, others


def _read(item: Item) -> Payload:
    close_old_connections()
    if connection.connection is None:
        set_timeouts()
    return read_payloads([item.event_id]).get(item.event_id, NOTHING)
