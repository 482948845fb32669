"""A run's journal as a replay of its body reads it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from agents.exceptions import Permanent
from agents.journal.canonical import match_of
from agents.journal.entries import RecordedStep
from agents.journal.protocol import EXPIRED, Answer, Ended
from agents.run import Event
from runs.db.sql import Query, Row, fetch, fetch_together
from runs.models import Approval, Run, Wait
from runs.ports import ports
from runs.transitions.entries import WaitEntry

STEPS = """
SELECT key, position, is_keyed, effect, status, attempts, output, error, error_kind, is_permanent
FROM runs_step WHERE run_id = %s::uuid
"""
WAITS = """
SELECT wait.key, wait.position, wait.is_keyed, wait.kind, wait.status, wait.event_type, wait.match_shape, wait.match_hash,
       wait.event_id, wait.children, approval.id, approval.digest
FROM runs_wait wait LEFT JOIN runs_approval approval ON approval.wait_id = wait.id WHERE wait.run_id = %s::uuid
"""

HAS_ENTRIES = """
SELECT EXISTS (SELECT FROM runs_step WHERE run_id = %(run)s::uuid) OR EXISTS (SELECT FROM runs_wait WHERE run_id = %(run)s::uuid)
"""
AT_ONCE = 20  # events that one statement reads


class EventsOfWaits:
    """The events that ended a run's waits, given their ids in the order of the waits, in which a replay asks for all of them. It reads
    some at once, the first of any size and the others small, and keeps those alone."""

    def __init__(self, ids: Sequence[UUID] = ()) -> None:
        self._places = {id: place for place, id in enumerate(ids)}
        self._ids = ids
        self._ahead: dict[UUID, Event] = {}

    def take(self, id: UUID) -> Event | None:
        """None: it was pruned. Any thread of the body may call this."""
        event = self._ahead.pop(id, None)
        if event is None:
            place = self._places.get(id, len(self._ids))
            read = {event.id: event for event in ports.read_ahead(id, self._ids[place + 1 : place + AT_ONCE])}
            event = read.pop(id, None)
            self._ahead = read
        return event


@dataclass(frozen=True, slots=True)
class RecordedWait:
    """A wait, over or not."""

    key: str
    position: int
    is_keyed: bool
    kind: str
    status: str
    event_type: str
    match_shape: str
    match_hash: str
    event_id: UUID | None
    children: Sequence[UUID]
    approval_id: UUID | None
    digest: str | None
    events: EventsOfWaits = field(default_factory=EventsOfWaits, repr=False, compare=False)

    @property
    def is_over(self) -> bool:
        return self.status in (Wait.Status.DONE, Wait.Status.EXPIRED)

    @property
    def sought(self) -> tuple[str, ...]:
        match self.kind:
            case Wait.Kind.EVENT:
                return ("event", self.event_type, self.match_shape, self.match_hash)
            case Wait.Kind.APPROVAL:
                return ("approval", self.digest or "")
            case Wait.Kind.CHILDREN:
                return ("children", *map(str, self.children))
            case Wait.Kind.BUDGET:
                return ("budget",)
            case Wait.Kind.SESSION:
                return ("session",)
            case Wait.Kind.MODEL:
                return ("model",)
        return ("time",)

    @property
    def asked_about(self) -> Any:
        """The arguments that a person is shown; None for what is no question."""
        return Approval.objects.get(pk=self.approval_id).arguments if self.approval_id else None

    @property
    def event(self) -> Event:
        """The event that ended the wait; Permanent if it was pruned."""
        event = self.events.take(self.event_id) if self.event_id else None
        if event is None:
            raise Permanent(
                f"the event that ended wait {self.key!r} was pruned; WAKEFUL_KEEP_EVENTS sets how long events are kept"
            )
        return event

    @property
    def answer(self) -> Answer:
        approval = Approval.objects.get(pk=self.approval_id or "")
        if self.status == Wait.Status.EXPIRED:
            return Answer(decision="expired", arguments=approval.arguments)
        decision: Any = approval.status
        arguments = approval.decided_arguments if decision == "edited" else approval.arguments
        return Answer(decision=decision, arguments=arguments, by=approval.decided_by, reason=approval.reason)

    def result(self) -> Any:
        if self.kind == Wait.Kind.APPROVAL:
            return self.answer
        if self.status == Wait.Status.EXPIRED:
            return EXPIRED
        return self.event if self.kind == Wait.Kind.EVENT else None

    def ends(self) -> list[dict[str, Any]]:
        children = Run.objects.filter(id__among=list(self.children)).only(
            "id", "status", "result", "error", "is_tainted"
        )
        found = {
            run.id: Ended(status=run.status, result=run.result, error=run.error, is_tainted=run.is_tainted)
            for run in children
        }
        pruned = Ended(status="unknown", error="this run has been pruned")
        return [vars(found.get(child, pruned)) for child in self.children]


def recorded(wait: WaitEntry) -> RecordedWait:
    """A wait for an event that was there already, as a replay will read it."""
    shape, hash = match_of(wait.match or {}, wait.event_source)
    return RecordedWait(
        wait.key, wait.position, wait.is_keyed, wait.kind, Wait.Status.DONE, wait.event_type, shape, hash, wait.event_id, (), None, None
    )  # fmt: skip


def read(run_id: UUID) -> tuple[list[RecordedStep], list[RecordedWait]]:
    """The complete journal of a run."""
    return of_rows(*fetch_together(*queries_of(run_id)))


def has_entries(run_id: UUID) -> bool:
    """Has this run a journal?"""
    return bool(fetch(HAS_ENTRIES, {"run": run_id})[0][0])


def queries_of(run_id: UUID) -> list[Query]:
    """The queries whose rows `of_rows` turns into a journal."""
    return [(STEPS, [run_id]), (WAITS, [run_id])]


def of_rows(steps: Sequence[Row], waits: Sequence[Row]) -> tuple[list[RecordedStep], list[RecordedWait]]:
    ended = sorted((position, event_id) for _, position, *_, event_id, _, _, _ in waits if event_id)
    events = EventsOfWaits([event_id for _, event_id in ended])
    return [RecordedStep(*row) for row in steps], [RecordedWait(*(*row, events)) for row in waits]
