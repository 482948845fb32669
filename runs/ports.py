"""Functions that a room or a floor needs from those above it. `config.wiring` connects each port at start-up, so imports go one
way."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NoReturn, Protocol
from uuid import UUID

from agents.kernel.effects import Effects
from agents.kernel.reply_place import ReplyPlace
from agents.run import Event


class PutOff(Exception):
    """Another session has locked rows that a handler needs for these payloads. It did not wait, and its writes are undone."""

    def __init__(self, payloads: Sequence[dict[str, Any]]) -> None:
        super().__init__(f"{len(payloads)} payloads")
        self.payloads = payloads


@dataclass(frozen=True, kw_only=True)
class Sought:
    """An event that a run waits for: of this type, with data that contains `match` (dotted path → value), from the source with
    this slug and with this subject if they are given, accepted after the run's event (or since an instant), not in `but`.

    `root` is the first event of the run's causal chain: no event that the run waits for is older. `searched_to` is the `seq` up
    to which an earlier search found nothing, `most` the number of events to read in this one."""

    type: str
    match: Mapping[str, Any]
    source: str = ""
    subject: str
    run_id: UUID
    after_event: UUID | None
    since: datetime
    but: Sequence[UUID]
    root: UUID
    searched_to: int | None = None
    most: int = 1000


@dataclass(frozen=True, kw_only=True)
class Searched:
    """The first such event, if any; without one, the `seq` to go on from, or None if every event was read."""

    event_id: UUID | None = None
    searched_to: int | None = None


class ReadEvents(Protocol):
    def __call__(self, event_ids: Sequence[UUID], /) -> list[Event]:
        """Read recorded events, as agents see them."""


class ReadAhead(Protocol):
    def __call__(self, event_id: UUID, others: Sequence[UUID], /) -> list[Event]:
        """The same for an event of any size, and for those of the others that are small."""


class FromStrangers(Protocol):
    def __call__(self, event_ids: Sequence[UUID], /) -> bool:
        """May strangers have written the data of one of these events?"""


class FindReplyPlace(Protocol):
    def __call__(self, event_id: UUID, /) -> ReplyPlace:
        """Where this event is answered. Raises NoReplyPlace."""


class FindRequestPlace(Protocol):
    def __call__(self, event_id: UUID, /) -> ReplyPlace:
        """Where the requests for decisions of a run of this event are posted. Raises NoReplyPlace."""


class SecretOf(Protocol):
    def __call__(self, source_id: UUID, /) -> str:
        """The newest secret of a source; empty: it has none, or is gone. InvalidToken: no key decrypts it."""


class FindEvent(Protocol):
    def __call__(self, sought: Sought, /) -> Searched:
        """Search one page of recorded events, dispatched or not."""


class SearchOf(Protocol):
    def __call__(self, sought: Sought, /) -> tuple[str, Mapping[str, Any]]:
        """The statement of FindEvent and its parameters, to be a part of another one. Its row: the event, and the `seq` to go on from."""


class CheckAhead(Protocol):
    def __call__(self, trigger_id: UUID | None, effects: Effects, /) -> None:
        """Raise Permanent if a run of this trigger must not set these wakes, schedules and paces."""


class TaintChanges(Protocol):
    def __call__(self, run_id: UUID, /) -> None:
        """Taint the events of changes that the run has made in the current transaction, as it has seen untrusted data."""


class LoopSpacing(Protocol):
    def __call__(self) -> timedelta:
        """The shortest average time that one round of a loop of triggers takes."""


class ActiveTime(Protocol):
    def __call__(self, since: datetime, length: timedelta, hours: str, zone: str, /) -> datetime:
        """The instant at which so much time of active hours has passed since another. Raises ValueError if they make no sense."""


class Deadlines(Protocol):
    """Deadlines that recur: a time of day on some days, and since when an event counts for each. A span is both instants."""

    def ending_after(self, instant: datetime, /) -> tuple[datetime, datetime]:
        """The span of the first deadline after an instant."""

    def beginning_after(self, instant: datetime, /) -> tuple[datetime, datetime]:
        """The span of the first deadline for which an event at this instant is too early."""

    def ended_by(self, instant: datetime, /) -> tuple[datetime, datetime]:
        """The span of the last deadline up to an instant."""

    def count(self, first: datetime, last: datetime, /) -> int:
        """The number of deadlines from one to another, both included."""

    @property
    def words(self) -> str: ...


class ReadDeadlines(Protocol):
    def __call__(self, by: str, since: str, days: str, zone: str, /) -> Deadlines:
        """The deadlines of these texts. A ValueError has the wrong one as its `field`: by, since, days or tz."""


class RecordSignal(Protocol):
    def __call__(self, run_id: UUID, name: str, data: Any, by: str, /) -> UUID:
        """Record a signal to a run as an event; return its id."""


@dataclass(frozen=True, kw_only=True)
class GateSubject:
    """The subject of a gate: the events of a run of this trigger, in this replay."""

    run_id: UUID
    trigger_id: UUID
    agent: str
    event_ids: Sequence[UUID]
    replay_id: UUID


@dataclass(frozen=True, kw_only=True)
class Last:
    """The state of a gate; had the gate that gave it seen untrusted data? And the revision that it had when a gate read it."""

    state: Any = None
    is_tainted: bool = False
    revision: int


class Gates(Protocol):
    """The book of the triggers' gates; `quiet`, `fired` and `keep` write in the caller's transaction."""

    def last(self, asked: GateSubject, /) -> Last:
        """The state that the last success kept (None: none)."""

    def quiet(self, asked: GateSubject, reason: str, /) -> None:
        """Count a quiet answer, and write it as the decision on each of the events."""

    def fired(self, asked: GateSubject, reason: str, /) -> None:
        """Count an answer that lets a run begin."""

    def failed(self, asked: GateSubject, error: str, /) -> None:
        """Count a gate that raised or hung."""

    def keep(self, trigger_id: UUID, agent: str, new: Last, /) -> bool:
        """Keep a state, if none was kept since its revision."""


class AbsoluteLink(Protocol):
    def __call__(self, link: str, /) -> str:
        """The link of a notification as an address that works from outside; empty if there is none."""


class SourcesOfConnection(Protocol):
    def __call__(self, name: str, /) -> Sequence[str]:
        """The slugs of the sources that name a connection, whether it exists or not."""


class InsideHandler(Protocol):
    def __call__(self, payloads: Sequence[dict[str, Any]], /) -> None:
        """Handle the payloads of a topic's messages, in the transaction that deletes their rows. Instead of waiting for a lock,
        a handler raises PutOff, and is called again without those payloads."""


class OutsideHandler(Protocol):
    def __call__(self, payload: dict[str, Any], /) -> None:
        """Handle one payload, over the network; the same payload may come again."""


class Ports:
    read_events: ReadEvents
    read_ahead: ReadAhead
    from_strangers: FromStrangers
    reply_place: FindReplyPlace
    request_place: FindRequestPlace
    secret_of: SecretOf
    find_event: FindEvent
    search_of: SearchOf
    check_ahead: CheckAhead
    loop_spacing: LoopSpacing
    taint_changes: TaintChanges
    active_time: ActiveTime
    deadlines: ReadDeadlines
    signal: RecordSignal
    gates: Gates
    sources_of_connection: SourcesOfConnection
    absolute: AbsoluteLink

    def __init__(self) -> None:
        self.inside: dict[str, InsideHandler] = {}
        self.outside: dict[str, OutsideHandler] = {}  # to the broker
        self.slow: dict[str, OutsideHandler] = {}  # these may take seconds

    def __getattr__(self, name: str) -> NoReturn:
        raise RuntimeError(f"runs.ports.ports.{name} is not connected; config.wiring connects it")


ports = Ports()


UNKNOWN_TASK = "unknown-task"  # messages of the broker that `runs.queues.unknown_tasks` keeps; no dispatcher takes them


def known_topics() -> list[str]:
    """The topics of the outbox. A message of another topic is from a newer version."""
    return [*ports.inside, *ports.outside, *ports.slow, UNKNOWN_TASK]
