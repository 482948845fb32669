"""Erase the payloads of events and of everything derived from them. Ids are kept.

Erased: data, body, headers, subject and body error of the events; input, result, error, traceback, journal and key of their
runs and of runs whose wait they ended; the same of these runs' children and forks, and of parents that received their
results; the texts of these runs' notifications and checklist items, and names in their audit entries; reasons of gates; answers
of endpoints that the events left to, while what waits to leave is called off; the keys for which switches wait; what calendars
have recorded of the events that the subject has organized; and the same for events that those runs emitted or received as
signals, down the causal chain. Kept: ids, types, times, states and the ledger, so that nothing is processed twice and the
history remains readable.

An event that is still needed or has a live run is not erased, and neither is any event that led to it, so that a later
erasure finds it again. Agents must erase their own state and what their code wrote elsewhere.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import Min, Q, QuerySet
from django.db.models.functions import Coalesce, Now
from django.utils.crypto import salted_hmac

from agents.kernel.reserved_types import SIGNAL
from runs.db.sql import database_now
from runs.models import Run
from runs.models.audit import record_about
from runs.retention.erasure import ERASED, emitting, erase_notifications, erase_runs, holders
from runs.states import LIVE
from triggers.matching.expressions.cel import Question, Unaffordable, check_expression
from triggers.matching.expressions.evaluator import Evaluator, Limits
from triggers.matching.match import subject_of
from triggers.matching.payload import Payload
from triggers.matching.pending import item_of
from triggers.models import Decision, Event, EventDelivery, Gate, Replay, Source, Switch, SwitchTimer
from triggers.retention.payloads import not_needed
from triggers.sources.calendars.erasure import Meetings
from triggers.switches.switch import ABSENCE

MARK = "erased:"
TOGETHER = 500  # events of one transaction, ids of one statement
WHERE = Limits(each=60.0, total=60.0)  # seconds of processor time per event; no other work waits for it


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The events to erase: with a subject, or for which a CEL expression is true, or both; of one source, or of any."""

    subject: str = ""
    source: str = ""
    where: str = ""

    def __post_init__(self) -> None:
        if not self.subject and not self.where:
            raise ValueError("name a subject or an expression")
        if self.where:
            check_expression(self.where)


@dataclass(frozen=True, kw_only=True)
class Left:
    """An event that is still needed, and the runs that need it (none: it waits for dispatch, or is held)."""

    event_id: UUID
    runs: list[UUID]


@dataclass(kw_only=True)
class Erasure:
    """The result of an erasure, or of a dry run."""

    events: int = 0
    runs: int = 0
    left: list[Left] = field(default_factory=list)
    meetings: int = 0  # entries of calendars, and starts that wait
    unread: list[UUID] = field(default_factory=list)  # their data did not parse, so `where` could not be evaluated


@dataclass(kw_only=True)
class Traces:
    """Events with the runs that may hold their payloads, and the causes of each event, in the order of discovery."""

    runs_of: dict[UUID, set[UUID]] = field(default_factory=dict)
    causes: dict[UUID, set[UUID]] = field(default_factory=dict)


def erase(selection: Selection, *, by: str, dry_run: bool = False) -> Erasure:
    """Erase the events of a selection and everything derived from them. Repeat it when the events that were left are done."""
    unread: list[UUID] = []
    # Before its events are looked for: a start that the dispatcher records at this moment is one of them.
    meetings = _meetings(selection, dry_run=dry_run)
    chosen = list(select(selection, unread))
    about = mark_of(selection.subject) if selection.subject else "where"
    if selection.subject and not dry_run:
        _forget_searches(selection.subject)
        _keys_of_events().filter(key=selection.subject).delete()
    return _erase(chosen, by=by, about=about, unread=unread, dry_run=dry_run, meetings=meetings)


def erase_event(event: Event, *, by: str) -> Erasure:
    """Erase one event and everything derived from it."""
    return _erase([event.pk], by=by, about=str(event.pk))


def _meetings(selection: Selection, *, dry_run: bool) -> int:
    if not selection.subject or selection.where:  # an expression is of events
        return 0
    meetings = Meetings(organizer=selection.subject, source=selection.source)
    return meetings.count() if dry_run else meetings.erase()


def mark_of(subject: str) -> str:
    """The replacement of an erased subject: a keyed hash, equal for equal subjects."""
    if subject.startswith(MARK):
        return subject
    return MARK + salted_hmac("wakeful.erasure", subject, algorithm="sha256").hexdigest()[:32]


def _forget_searches(subject: str) -> None:
    """Replays keep what they searched for."""
    for replay in Replay.objects.filter(search__subject=subject):
        Replay.objects.filter(pk=replay.pk).update(search={**replay.search, "subject": mark_of(subject)})


def select(selection: Selection, unread: list[UUID]) -> Iterable[UUID]:
    """The selected events. Events with this subject that were erased before are included: more may derive from them now.
    Appends events that `where` cannot be evaluated on to `unread`."""
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
                # Its data is gone: only its subject can select it.
                if selection.subject:
                    yield event.pk
            elif _holds(selection.where, event, evaluator):
                yield event.pk
            elif event.is_raw:
                unread.append(event.pk)


def _holds(expression: str, event: Event, evaluator: Evaluator) -> bool:
    """Whether the expression is true for the event. Raises Unaffordable if it is too costly, so that no event is
    skipped silently.
    """
    subject = subject_of(item_of(event), Payload(text=json.dumps(event.data)))
    [answer] = evaluator.answers(subject, [Question(filter=expression)], WHERE)
    if answer.is_unaffordable:
        raise Unaffordable(f"event {event.pk}: {answer.error}")
    return answer.passes and not answer.error  # an error means, for example, that a field is missing


def _erase(
    chosen: Sequence[UUID],
    *,
    by: str,
    about: str,
    unread: Sequence[UUID] = (),
    dry_run: bool = False,
    meetings: int = 0,
) -> Erasure:
    traces = follow(chosen)
    left = needed(traces)
    kept = stems_of(left, traces)
    # Effects before causes: if an effect is needed by then, a later erasure still finds it through its causes.
    going = [id for id in reversed(traces.runs_of) if id not in kept]
    erasure = Erasure(
        left=[Left(event_id=id, runs=_live_runs(traces.runs_of[id])) for id in sorted(left)],
        unread=list(unread),
        meetings=meetings,
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
    more = {name: count for name, count in {"unread": len(unread), "meetings": meetings}.items() if count}
    record_about(by, "erase", "subject", about, **detail, **more)
    return erasure


def follow(chosen: Sequence[UUID]) -> Traces:
    """The events, the runs that hold them, the events that these runs emitted or received as signals, and so on to the end
    of the causal chain."""
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
    """The signals to the runs. Their subject is the run's id, or its hash if they were erased."""
    subjects = {subject: run for run in runs for subject in (str(run), mark_of(str(run)))}
    sent = Event.objects.filter(subject__among=list(subjects), type=SIGNAL).order_by("id").values_list("id", "subject")
    return [(event, subjects[subject]) for event, subject in sent]


def needed(traces: Traces) -> set[UUID]:
    """The events that are still needed, or have a run that is live or whose emitted events are still in the outbox."""
    events = list(traces.runs_of)
    some_day = database_now() + timedelta(days=1)
    free = {event for some in pieces(events) for event in not_needed(some, but_by_runs_before=some_day)}
    runs = _runs(events, traces)
    busy = emitting(runs).union(_live_runs(runs))
    return {event for event in events if event not in free or busy & traces.runs_of[event]}


def stems_of(left: set[UUID], traces: Traces) -> set[UUID]:
    """These events and all their causes."""
    found, frontier = set(left), set(left)
    while frontier := {cause for event in frontier for cause in traces.causes.get(event, ())} - found:
        found |= frontier
    return found


def _erase_together(event_ids: Sequence[UUID], traces: Traces, erasure: Erasure) -> None:
    with transaction.atomic():
        # The same lock as a replay takes, so that each sees the other's changes.
        locked = list(
            Event.objects.filter(id__among=event_ids).order_by("id").select_for_update().values_list("id", flat=True)
        )
        # A run may have been requeued since `needed`, or between this check and its erasure.
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
        # A reason may quote a value from the event.
        quotes = Q(outcome=Decision.Outcome.ERROR) | Q(outcome=Decision.Outcome.QUIET)
        decisions = Decision.objects.filter(quotes, event__id__among=sorted(free))
        gates = {*decisions.values_list("trigger_id", flat=True), *_triggers_of(_runs(free, traces))}
        Gate.objects.filter(trigger__id__among=sorted(gates)).update(last_reason=ERASED)
        decisions.update(reason=ERASED)
        _erase_reports(free)
        _erase_deliveries(free)
        _forget_keys(free)


def _erase_reports(event_ids: set[UUID]) -> None:
    """Erase the reports that no run came of these events: the reason in them may quote a value, too."""
    first = Event.objects.filter(id__among=sorted(event_ids)).aggregate(first=Min("received_at"))["first"]
    if first:
        erase_notifications(Q(link__among=[f"event:{id}" for id in sorted(event_ids)]), since=first)


def _erase_deliveries(event_ids: set[UUID]) -> None:
    """Stop deliveries that have not been sent, and erase answers of endpoints, which may quote the event."""
    leaving = EventDelivery.objects.filter(event__id__among=sorted(event_ids))
    waiting = leaving.filter(status=EventDelivery.Status.PENDING)
    waiting.update(status=EventDelivery.Status.FAILED, reason="its event was erased", due_at=None, ended_at=Now())
    leaving.filter(status=EventDelivery.Status.ERROR).update(reason=ERASED)
    leaving.exclude(tries=[]).update(tries=[])


def _forget_keys(event_ids: set[UUID]) -> None:
    """Remove the keys of these events from switches, and erase their last errors, which may quote a key."""
    erased = sorted(event_ids)
    of_them = Q(since_id__among=erased) | Q(latest_id__among=erased) | Q(seen_id__among=erased)
    _keys_of_events().filter(of_them | Q(opened_id__among=erased)).exclude(key="").delete()
    Switch.objects.exclude(error="").update(error=ERASED)


def _keys_of_events() -> QuerySet[SwitchTimer]:
    """The timers whose keys come from events. Keys that are listed in settings stay: a deadline expects them."""
    listed = Source.objects.filter(kind=ABSENCE, settings__keys__regex=r"\S")
    return SwitchTimer.objects.exclude(source__in=listed)


def _triggers_of(run_ids: Sequence[UUID]) -> set[UUID]:
    runs = (
        Run.objects.filter(id__among=some, trigger_id__isnull=False).values_list("trigger_id", flat=True).distinct()
        for some in pieces(run_ids)
    )
    return {id for some in runs for id in some if id is not None}


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
    """Batches for statements and transactions."""
    return (ids[start : start + TOGETHER] for start in range(0, len(ids), TOGETHER))
