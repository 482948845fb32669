"""What `runs` needs from the rooms above it. `config.wiring` connects each port at start-up, so imports go one way."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NoReturn, Protocol
from uuid import UUID

from agents.effects import Effects
from agents.run import Event


class PutOff(Exception):
    """Another session has locked what a handler needs for these payloads. It did not wait, and what it wrote is undone."""

    def __init__(self, payloads: Sequence[dict[str, Any]]) -> None:
        super().__init__(f"{len(payloads)} payloads")
        self.payloads = payloads


@dataclass(frozen=True, kw_only=True)
class Sought:
    """An event that a run waits for: of this type, its data containing `match` (dotted path → value), from the source of
    this slug and with this subject if one is given, accepted after the event that the run was made for (or since an
    instant), none of `but`.

    `root` is the first event of the run's causal chain: no event that the run waits for is older. `searched_to` is the
    `seq` up to which an earlier search found nothing, `most` the number of events to read in this one."""

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
    """The first such event, if any; without one, the `seq` to go on from, or None: every event was looked at."""

    event_id: UUID | None = None
    searched_to: int | None = None


class ReadEvents(Protocol):
    def __call__(self, event_ids: Sequence[UUID], /) -> list[Event]:
        """Recorded events, as their agents see them."""


class FindEvent(Protocol):
    def __call__(self, sought: Sought, /) -> Searched:
        """Search one page of recorded events, dispatched or not."""


class CheckAhead(Protocol):
    def __call__(self, trigger_id: UUID | None, effects: Effects, /) -> None:
        """Raise Permanent where a run of this trigger must not set these wakes, schedules and paces."""


class LoopSpacing(Protocol):
    def __call__(self) -> timedelta:
        """How long a loop of triggers takes at least, on average."""


class RecordSignal(Protocol):
    def __call__(self, run_id: UUID, name: str, data: Any, by: str, /) -> UUID:
        """Record a signal to a run as an event; its id."""


class InsideHandler(Protocol):
    def __call__(self, payloads: Sequence[dict[str, Any]], /) -> None:
        """Handle the payloads of a topic's messages, in the transaction that deletes their rows. A handler never waits for
        a lock: it raises PutOff, and is called again without those payloads."""


class OutsideHandler(Protocol):
    def __call__(self, payload: dict[str, Any], /) -> None:
        """Handle one payload, over the network; it may come again."""


class Ports:
    read_events: ReadEvents
    find_event: FindEvent
    check_ahead: CheckAhead
    loop_spacing: LoopSpacing
    signal: RecordSignal

    def __init__(self) -> None:
        self.inside: dict[str, InsideHandler] = {}
        self.outside: dict[str, OutsideHandler] = {}  # to the broker
        self.slow: dict[str, OutsideHandler] = {}  # these may take seconds
        self.slow_looks: list[Callable[[], None]] = []  # the dispatcher's; each keeps its own time

    def __getattr__(self, name: str) -> NoReturn:
        raise RuntimeError(f"runs.ports.ports.{name} is not connected; config.wiring connects it")


ports = Ports()


def known_topics() -> list[str]:
    """Of the outbox. A message of any other was left by a newer version."""
    return [*ports.inside, *ports.outside, *ports.slow]
