"""Erasure: taking away for good what events said, and what came of it, while every id stays.

What goes: data, body, headers and subject of the events, and the reason why a body was not JSON; input, result, error,
traceback, journal and key of their runs, and of the runs whose wait took one of them; the same of these runs' children and
forks, and of the parents that were given their results; the text of all these runs' notifications, and names in their audit
entries; and the same of the events those runs emitted or were sent as signals, down the causal chain. What stays: ids,
types, times, states, the ledger. So nothing is done twice, and the history still explains itself.

An event that is still needed, or of which one of these runs is live, is left, and so is every event it stems from: what
leads to it must be found again. The agents' own state, and what their code wrote elsewhere, are theirs to erase.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Coalesce, Now
from django.utils.crypto import salted_hmac

from agents.reserved import SIGNAL
from runs.audit import record_about
from runs.db.sql import database_now
from runs.models import Run
from runs.retention.erasure import ERASED, emitting, erase_runs, holders
from runs.states import LIVE
from triggers.dispatch.evaluator import Evaluator, Limits
from triggers.dispatch.expressions import Question, Unaffordable, compile_expression
from triggers.dispatch.match import subject_of
from triggers.dispatch.payload import Payload
from triggers.dispatch.pending import item_of
from triggers.models import Decision, Event
from triggers.retention.payloads import not_needed

MARK = "erased:"
TOGETHER = 500  # events of one transaction, ids of one statement
WHERE = Limits(each=60.0, total=60.0)  # seconds of processor time for an event: no other work waits behind it


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which events are meant: of a subject, or for which a CEL expression is true, or both; of one source, or of any."""

    subject: str = ""
    source: str = ""
    where: str = ""

    def __post_init__(self) -> None:
        if not self.subject and not self.where:
            raise ValueError("name a subject, or say where")
        if self.where:
            compile_expression(self.where)


@dataclass(frozen=True, kw_only=True)
class Left:
    """An event that is still needed, and by which runs (none: it waits for dispatch, or is held)."""

    event_id: UUID
    runs: list[UUID]


@dataclass(kw_only=True)
class Erasure:
    """What was erased, or would be."""

    events: int = 0
    runs: int = 0
    left: list[Left] = field(default_factory=list)
    unread: list[UUID] = field(default_factory=list)  # whose data did not parse, so that `where` could not look into it


@dataclass(kw_only=True)
class Traces:
    """Events, the runs that may hold what they said, and what stems from what; in the order in which they were found."""

    runs_of: dict[UUID, set[UUID]] = field(default_factory=dict)
    causes: dict[UUID, set[UUID]] = field(default_factory=dict)


def erase(selection: Selection, *, by: str, dry_run: bool = False) -> Erasure:
    """Erase what the events of a selection said, and what came of it. Repeat it once what was left is done."""
    unread: list[UUID] = []
    chosen = list(select(selection, unread))
    about = mark_of(selection.subject) if selection.subject else "where"
    return _erase(chosen, by=by, about=about, unread=unread, dry_run=dry_run)


def erase_event(event: Event, *, by: str) -> Erasure:
    """Erase what one event said, and what came of it."""
    return _erase([event.pk], by=by, about=str(event.pk))


def mark_of(subject: str) -> str:
    """What stands in place of an erased subject: the same for the same one, and nobody can read or guess it from that."""
    if subject.startswith(MARK):
        return subject
    return MARK + salted_hmac("wakeful.erasure", subject, algorithm="sha256").hexdigest()[:32]


def select(selection: Selection, unread: list[UUID]) -> Iterable[UUID]:
    """Those that were erased before are found again by their subject: more may have come of them since. `unread` is given
    those that may be meant, and cannot be asked."""
    events = Event.objects.order_by("id")
    if selection.subject:
        events = events.filter(subject__in=[selection.subject, mark_of(selection.subject)])
    if selection.source:
        events = events.filter(source__slug=selection.source)
    if not selection.where:
        return events.values_list("id", flat=True)
    return _where(selection, events, unread)


def _where(selection: Selection, events: QuerySet[Event], unread: list[UUID]) -> Iterable[UUID]:
    is_raw = Q(data__isnull=True, body__isnull=False)
    with Evaluator() as evaluator:
        for event in (
            events.annotate(is_raw=is_raw)
            .select_related("source")
            .defer("body", "headers")
            .iterator(chunk_size=TOGETHER)
        ):
            if event.payload_removed_at:
                # It no longer says what it said: only the subject can tell that it is meant.
                if selection.subject:
                    yield event.pk
            elif _holds(selection.where, event, evaluator):
                yield event.pk
            elif event.is_raw:
                unread.append(event.pk)


def _holds(expression: str, event: Event, evaluator: Evaluator) -> bool:
    """Raises Unaffordable where that cannot be said: an event is not left out of an erasure unnoticed."""
    subject = subject_of(item_of(event), Payload(text=json.dumps(event.data)))
    [answer] = evaluator.answers(subject, [Question(filter=expression)], WHERE)
    if answer.is_unaffordable:
        raise Unaffordable(f"event {event.pk}: {answer.error}")
    return answer.passes and not answer.error  # an error is one such as: it has no field of that name


def _erase(
    chosen: Sequence[UUID], *, by: str, about: str, unread: Sequence[UUID] = (), dry_run: bool = False
) -> Erasure:
    traces = follow(chosen)
    left = needed(traces)
    kept = stems_of(left, traces)
    # What was caused goes before what caused it: should it be needed by then, the way to it is still there.
    going = [id for id in reversed(traces.runs_of) if id not in kept]
    erasure = Erasure(
        left=[Left(event_id=id, runs=_live_runs(traces.runs_of[id])) for id in sorted(left)], unread=list(unread)
    )
    if dry_run:
        for some in pieces(going):
            erasure.events += Event.objects.filter(id__among=some).filter(_says_something()).count()
        for some in pieces(_runs(going, traces)):
            erasure.runs += Run.objects.filter(id__among=some, payload_removed_at=None).count()
        return erasure
    for some in pieces(going):
        _erase_together(some, traces, erasure)
    detail = {"events": erasure.events, "runs": erasure.runs, "left": [str(one.event_id) for one in erasure.left]}
    record_about(by, "erase", "subject", about, **detail, **({"unread": len(unread)} if unread else {}))
    return erasure


def follow(chosen: Sequence[UUID]) -> Traces:
    """The events, the runs that hold them, the events these emitted or were sent as signals, and so on to the ends of the
    causal chain."""
    traces = Traces()
    frontier = list(chosen)
    while frontier:
        found = []
        for some in pieces(frontier):
            traces.runs_of |= holders(some)
            by_run = {run: event for event in some for run in traces.runs_of[event]}
            for runs in pieces(list(by_run)):
                for event_id, run_id in [*_emitted_by(runs), *_sent_to(runs)]:
                    traces.causes.setdefault(event_id, set()).add(by_run[run_id])
                    found.append(event_id)
        frontier = [event_id for event_id in found if event_id not in traces.runs_of]
    return traces


def _emitted_by(runs: Sequence[UUID]) -> Iterable[tuple[UUID, UUID]]:
    emitted = Event.objects.filter(cause_run_id__among=runs).order_by("id").values_list("id", "cause_run_id")
    return [(event, run) for event, run in emitted if run is not None]


def _sent_to(runs: Sequence[UUID]) -> Iterable[tuple[UUID, UUID]]:
    """The signals that were sent to the runs: their subject is the run, and erased once they are."""
    subjects = {subject: run for run in runs for subject in (str(run), mark_of(str(run)))}
    sent = Event.objects.filter(subject__among=list(subjects), type=SIGNAL).order_by("id").values_list("id", "subject")
    return [(event, subjects[subject]) for event, subject in sent]


def needed(traces: Traces) -> set[UUID]:
    """Those of the events that somebody still needs, or of whose runs one is live or has emitted what has not arrived."""
    events = list(traces.runs_of)
    some_day = database_now() + timedelta(days=1)
    free = {event for some in pieces(events) for event in not_needed(some, but_by_runs_before=some_day)}
    runs = _runs(events, traces)
    busy = emitting(runs).union(_live_runs(runs))
    return {event for event in events if event not in free or busy & traces.runs_of[event]}


def stems_of(left: set[UUID], traces: Traces) -> set[UUID]:
    """These events, and all they stem from."""
    found, frontier = set(left), set(left)
    while frontier := {cause for event in frontier for cause in traces.causes.get(event, ())} - found:
        found |= frontier
    return found


def _erase_together(event_ids: Sequence[UUID], traces: Traces, erasure: Erasure) -> None:
    with transaction.atomic():
        # Locked as a replay locks, so that each sees what the other has done.
        locked = list(
            Event.objects.filter(id__among=event_ids).order_by("id").select_for_update().values_list("id", flat=True)
        )
        # A run may have been requeued since they were looked at: before this, or between this and the erasure of its own.
        for some in pieces(_runs(_without_live(locked, traces), traces)):
            erasure.runs += erase_runs(some)
        free = set(not_needed(_without_live(locked, traces)))
        erasure.left += [Left(event_id=id, runs=_live_runs(traces.runs_of[id])) for id in locked if id not in free]
        saying = Event.objects.filter(id__among=sorted(free)).filter(_says_something())
        for event in saying.only("subject", "data_error"):
            erasure.events += Event.objects.filter(pk=event.pk).update(
                data=None, body=None, headers=None, payload_removed_at=Coalesce("payload_removed_at", Now()),
                subject=mark_of(event.subject) if event.subject else "",
                data_error=ERASED if event.data_error else "",
            )  # fmt: skip
        # Of what an expression made of the event, its reason may quote a part.
        Decision.objects.filter(event__id__among=sorted(free), outcome=Decision.Outcome.ERROR).update(reason=ERASED)


def _without_live(event_ids: Sequence[UUID], traces: Traces) -> list[UUID]:
    live = set(_live_runs(_runs(event_ids, traces)))
    return [id for id in event_ids if live.isdisjoint(traces.runs_of[id])]


def _says_something() -> Q:
    subject = ~Q(subject="") & ~Q(subject__startswith=MARK)
    return Q(payload_removed_at=None) | subject | ~Q(data_error__in=["", ERASED])


def _runs(event_ids: Iterable[UUID], traces: Traces) -> list[UUID]:
    return sorted({run for event in event_ids for run in traces.runs_of[event]})


def _live_runs(run_ids: Iterable[UUID]) -> list[UUID]:
    return [
        id
        for some in pieces(sorted(run_ids))
        for id in Run.objects.filter(id__among=some, status__in=sorted(LIVE))
        .values_list("id", flat=True)
        .order_by("id")
    ]


def pieces(ids: Sequence[UUID]) -> Iterator[Sequence[UUID]]:
    """No statement and no transaction is about more of them at a time."""
    return (ids[start : start + TOGETHER] for start in range(0, len(ids), TOGETHER))
