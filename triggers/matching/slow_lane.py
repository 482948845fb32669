"""Costly matching beside the dispatcher, so that no expression and no payload holds up the dispatch of other events.

A case is costly if its expressions must be evaluated in another process; an event is large if the dispatcher's thread should not
read its payload. Threads read such payloads, and ask evaluators of their own:

- The quick lanes give each trigger QUICK seconds of processor time on an event.
- A case that needs more goes on in the slow lane, within the limits of the settings. For a minute, the trigger's cases on events
  of this size or larger start there.

The dispatcher waits PATIENCE for answers. Then it dispatches what is answered, and holds the event: it is not read again until the
rest is answered, and later events wait for it only at triggers that order their events. Nothing is stored about this: the event
stays undispatched, and its next dispatch, also by another dispatcher, leaves out what it has led to already.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar
from uuid import UUID

from django.db import Error as DjangoDatabaseError
from django.db import close_old_connections, connection

from runs.db.listen import set_timeouts
from triggers.matching.expressions.cel import Answer, Question
from triggers.matching.expressions.evaluator import Evaluator, Limits
from triggers.matching.index import Index, Rule
from triggers.matching.match import (
    Case,
    CasesOf,
    Matched,
    cases_of,
    field_of_event,
    judged,
    needs_payload,
    subject_of,
    wanted_by,
)
from triggers.matching.payload import NOTHING, UNREAD, Payload, read_payloads
from triggers.matching.pending import Identity, Item

T = TypeVar("T")
PATIENCE = 0.03  # seconds of a batch
QUICK = 0.05  # seconds of processor time, of one trigger on an event
QUICK_LANES = 2
LARGEST_QUICK = 2**20  # bytes
PARSED_HERE = 2**18  # characters of JSON: a few milliseconds
MOST_HELD = 2_000  # events; further ones are read again by each batch
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
    answers: Sequence[Answer] = ()
    wanted: Sequence[Rule] = ()
    over: Sequence[Case] = ()
    error: Exception | None = None


@dataclass(kw_only=True)
class Plan:
    """An event and its cases; None: its payload must be read first. `payload`: UNREAD if lanes read it."""

    item: Item
    cases: Sequence[Case] | None = None
    payload: Payload

    @cached_property
    def costly(self) -> list[Case]:
        return [case for case in self.cases or () if case.is_costly(self.payload)]


@dataclass(kw_only=True)
class Known:
    """The cases of an event and the answers known so far."""

    item: Item
    listening: Sequence[Rule] | None = None  # of a large event: the rules that listened when `wanted` was requested
    wanted: Sequence[Rule] | None = None
    asked: dict[UUID, Question] = field(default_factory=dict)
    slow: set[UUID] = field(default_factory=set)  # triggers whose cases are in the slow lane
    answers: dict[UUID, Answer] = field(default_factory=dict)
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

    def answer(self, case: Case) -> Answer | None:
        return self.answers.get(case.rule.id) if self.asked.get(case.rule.id) == case.question else None

    def is_asked(self, case: Case) -> bool:
        return self.asked.get(case.rule.id) == case.question


class Costly:
    """The dispatcher's side: used by its thread alone. Lanes take jobs and give results.

    `others`: the same for expressions of subscriptions and switches, with lanes of its own, so that neither waits for the other. It
    only answers; what waits for its answers is held here."""

    def __init__(self, cases: CasesOf = cases_of, others: "Costly | None" = None) -> None:
        self.cases_of, self.others = cases, others
        self.known: dict[Identity, Known] = {}
        self.results: queue.SimpleQueue[Result] = queue.SimpleQueue()
        self.quick = Lane(self.results, threads=QUICK_LANES, is_quick=True)
        self.slow = Lane(self.results, threads=1, is_quick=False)
        self.slow_until: dict[UUID, dict[int, float]] = {}
        # Another dispatcher may have dispatched parts of the events up to this one; None: of any.
        self.since: int | None = None

    # Reading

    @property
    def held(self) -> list[Identity]:
        return [identity for identity, known in self.known.items() if known.is_held]

    @property
    def is_running(self) -> bool:
        return any(map(self._is_running, self.known))

    def ready(self) -> list[Identity]:
        """The held events to dispatch again, in order: those that wait for nothing any more, and those with news."""
        self._collect()
        if self.others:
            self.others._collect()
        found, blocked = list[Identity](), set[UUID]()
        for known in self._held_in_order():
            is_over = not self._is_running(known.item.identity) and known.behind.isdisjoint(blocked)
            if is_over or self._has_news(known, blocked):
                found.append(known.item.identity)
            if not is_over:
                blocked |= known.blocks
        return found

    def _is_running(self, identity: Identity) -> bool:
        known = self.known.get(identity)
        return bool(known and known.is_running) or bool(self.others and self.others._is_running(identity))

    def _has_news(self, known: Known, blocked: Set[UUID]) -> bool:
        sent = self.others and self.others.known.get(known.item.identity)
        return known.has_news(blocked) or bool(sent and sent.has_news(frozenset()))

    def wanted(self, item: Item) -> Sequence[Rule]:
        """The triggers that may match a large event, as far as they are known."""
        known = self.known.get(item.identity)
        return (known.wanted if known else None) or []

    def close(self) -> None:
        """End the threads; for tests, since a dispatcher's end with it."""
        self.quick.close()
        self.slow.close()
        if self.others:
            self.others.close()

    def forget(self, identities: Iterable[Identity]) -> None:
        for identity in identities:
            self.known.pop(identity, None)
            if self.others:
                self.others.known.pop(identity, None)

    def settled(self, matched: Sequence[Matched]) -> int:
        """Note that these events were dispatched with the known answers; return the number of events held from now
        on.
        """
        before = count = len(self.held)
        for one in matched:
            if not one.is_partial:
                self.forget([one.item.identity])
                continue
            known = self.known.setdefault(one.item.identity, Known(item=one.item))
            if known.is_held or count < MOST_HELD:
                count += not known.is_held
                known.is_held, known.behind, known.blocks = True, one.behind, one.blocks
                known.told = frozenset(known.answers) - one.behind
                if self.others and (sent := self.others.known.get(one.item.identity)):
                    sent.told = frozenset(sent.answers)
        for costly in (self, self.others):
            if costly and len(costly.known) > 2 * MOST_HELD:
                held = set(self.held)
                costly.known = {identity: known for identity, known in costly.known.items() if identity in held}
        return max(count - before, 0)

    def _held_in_order(self) -> list[Known]:
        return sorted((known for known in self.known.values() if known.is_held), key=lambda known: known.item.seq)

    # Matching

    def match(self, items: Sequence[Item], index: Index, patience: float = PATIENCE) -> list[Matched]:
        """Match these events, which are in order, as far as their answers arrive within `patience`."""
        payloads = read_payloads([item.event_id for item in items if not item.is_large and needs_payload(item, index)])
        plans = [self._plan(item, index, payloads.get(item.event_id, NOTHING)) for item in items]
        asked = [plan.item for plan in plans if self._ask(plan, index)]
        if asked:
            self._wait({item.identity for item in asked}, patience)
            plans = [plan if plan.cases is not None else self._plan(plan.item, index, NOTHING) for plan in plans]
        own = {item.identity for item in items}
        earlier = [known for known in self._held_in_order() if known.item.identity not in own]
        blocked, matched = set[UUID](), list[Matched]()
        for plan in plans:
            while earlier and earlier[0].item.seq < plan.item.seq:
                blocked |= earlier.pop(0).blocks
            matched.append(self._match(plan, index, blocked))
            blocked |= matched[-1].blocks
        return matched

    def _plan(self, item: Item, index: Index, payload: Payload) -> Plan:
        if not (item.is_large and needs_payload(item, index)):
            return Plan(item=item, cases=self.cases_of(item, wanted_by(item, index, payload)), payload=payload)
        known = self.known.get(item.identity)
        if known is None or known.wanted is None or known.listening != wanted_by(item, index):
            return Plan(item=item, payload=UNREAD)
        return Plan(item=item, cases=self.cases_of(item, known.wanted), payload=UNREAD)

    def _ask(self, plan: Plan, index: Index) -> bool:
        """Begin the costly cases of the event that have not begun; return whether to wait for a quick answer."""
        item = plan.item
        if plan.cases is None:
            known = self.known.setdefault(item.identity, Known(item=item))
            if known.is_being_read or known.error:
                return False
            known.is_being_read, known.wanted, known.listening = True, None, wanted_by(item, index)
            left = frozenset(rule.id for rule in known.listening if self._is_slow(rule.id, item))
            job = Job(item=item, index=index, cases_of=self.cases_of, slow=left)
            return self._submit(job, is_slow=item.bytes > LARGEST_QUICK)
        if not plan.costly:
            return False
        known = self.known.setdefault(item.identity, Known(item=item))
        new = [] if known.error else [case for case in plan.costly if not known.is_asked(case)]
        slow, quick = _parted(new, lambda case: self._is_slow(case.rule.id, item))
        for case in new:
            known.asked[case.rule.id] = case.question
            known.answers.pop(case.rule.id, None)
        known.slow |= {case.rule.id for case in slow}
        read = None if plan.payload is UNREAD else plan.payload
        if slow:
            self._submit(Job(item=item, cases=slow, payload=read), is_slow=True)
        if not quick:
            return False
        return self._submit(Job(item=item, cases=quick, payload=read), is_slow=item.bytes > LARGEST_QUICK)

    def _match(self, plan: Plan, index: Index, blocked: set[UUID]) -> Matched:
        item, known = plan.item, self.known.get(plan.item.identity)
        if known and known.error:
            del self.known[item.identity]
            raise known.error
        if plan.cases is None:
            ordering = frozenset(rule.id for rule in wanted_by(item, index) if rule.has_group)
            return Matched(item=item, is_partial=True, blocks=ordering, behind=ordering & blocked)
        answers = {case.rule.id: known.answer(case) if known else None for case in plan.costly}
        behind = frozenset(case.rule.id for case in plan.cases if case.rule.id in blocked and case.rule.has_group)
        missing = behind | {id for id, answer in answers.items() if answer is None}
        if missing and item.is_resumption:
            missing = frozenset(case.rule.id for case in plan.cases)  # a redispatch is not dispatched in part
        if missing:
            known = self.known.setdefault(item.identity, Known(item=item))
        matched = judged(
            item,
            [case for case in plan.cases if case.rule.id not in missing],
            NOTHING if plan.payload is UNREAD else plan.payload,
            {id: answer for id, answer in answers.items() if answer is not None},
        )
        matched.is_partial, matched.behind = bool(missing), behind
        matched.blocks = frozenset(
            case.rule.id for case in plan.cases if case.rule.id in missing and case.rule.has_group
        )
        is_older = self.since is None or item.seq <= self.since
        matched.may_be_settled = not item.is_resumption and (is_older or known is not None)
        return matched

    # Lanes

    def _submit(self, job: Job, *, is_slow: bool) -> bool:
        (self.slow if is_slow else self.quick).put(job)
        return not is_slow

    def _wait(self, asked: set[Identity], seconds: float) -> None:
        until = time.monotonic() + seconds
        while any(known.is_quick for identity in asked if (known := self.known.get(identity))):
            left = until - time.monotonic()
            if left <= 0:
                return
            try:
                self._take(self.results.get(timeout=left))
            except queue.Empty:
                return

    def _collect(self) -> None:
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
            self._submit(Job(item=result.job.item, cases=over, payload=payload), is_slow=True)

    def _is_slow(self, trigger_id: UUID, item: Item) -> bool:
        now = time.monotonic()
        sizes = self.slow_until.get(trigger_id, {})
        return any(until > now and size <= item.bytes.bit_length() for size, until in sizes.items())

    def _note_slow(self, trigger_id: UUID, item: Item) -> None:
        if len(self.slow_until) >= MOST_SLOW:
            self.slow_until.clear()
        self.slow_until.setdefault(trigger_id, {})[item.bytes.bit_length()] = time.monotonic() + SLOW_FOR


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
        left, cases = _parted(cases, lambda case: self.is_quick and case.rule.id in job.slow)
        limits = Limits.from_settings()
        if self.is_quick:
            limits = Limits(each=min(QUICK, limits.each), total=min(5 * QUICK, limits.total))
        answers = (
            evaluator.answers(subject_of(job.item, payload), [case.question for case in cases], limits) if cases else []
        )
        # Data over the limit is an answer; too little time is one in the slow lane only.
        can_be_over = self.is_quick and not payload.without_data
        over, found = _parted(zip(cases, answers, strict=True), lambda one: can_be_over and one[1].is_unaffordable)
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


def _parted(all_: Iterable[T], is_first: Callable[[T], bool]) -> tuple[list[T], list[T]]:
    first, others = list[T](), list[T]()
    for one in all_:
        (first if is_first(one) else others).append(one)
    return first, others


def _read(item: Item) -> Payload:
    close_old_connections()
    if connection.connection is None:
        set_timeouts()
    return read_payloads([item.event_id]).get(item.event_id, NOTHING)
