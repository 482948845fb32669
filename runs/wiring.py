"""What `runs` needs from the rooms above it; `config` fills this in at start-up, so that imports go one way."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from agents.effects import Effects
from agents.run import Event


class PutOff(Exception):
    """Another session has locked what a handler needs for these payloads. It did not wait, and what it wrote is undone."""

    def __init__(self, payloads: Sequence[dict[str, Any]]) -> None:
        super().__init__(f"{len(payloads)} payloads")
        self.payloads = payloads


# A handler gets the payloads of a topic's messages, in the transaction that deletes their rows. It never waits for a lock:
# it raises PutOff, and is called again without those payloads.
InsideHandler = Callable[[Sequence[dict[str, Any]]], None]
# A handler that touches the network gets one payload; it may see the same one again.
OutsideHandler = Callable[[dict[str, Any]], None]


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


def _unwired_search(sought: Sought) -> Searched:
    raise RuntimeError("runs.wiring.wiring.find_event is not set; config.apps wires it")


def _unwired(event_ids: Sequence[UUID]) -> list[Event]:
    raise RuntimeError("runs.wiring.wiring.read_events is not set; config.apps wires it")


def _unwired_ahead(trigger_id: UUID | None, effects: Effects) -> None:
    raise RuntimeError("runs.wiring.wiring.check_ahead is not set; config.apps wires it")


def _unwired_spacing() -> timedelta:
    raise RuntimeError("runs.wiring.wiring.loop_spacing is not set; config.apps wires it")


def _unwired_signal(run_id: UUID, name: str, data: Any, by: str) -> UUID:
    raise RuntimeError("runs.wiring.wiring.signal is not set; config.apps wires it")


@dataclass
class Wiring:
    read_events: Callable[[Sequence[UUID]], list[Event]] = _unwired
    find_event: Callable[[Sought], Searched] = _unwired_search  # dispatched or not; reads no more than a page
    check_ahead: Callable[[UUID | None, Effects], None] = (
        _unwired_ahead  # Permanent: why a trigger's run must not set these
    )
    loop_spacing: Callable[[], timedelta] = _unwired_spacing  # how long a loop of triggers takes at least, on average
    signal: Callable[[UUID, str, Any, str], UUID] = _unwired_signal  # to a run, by name, with data, by whom; the event
    inside: dict[str, InsideHandler] = field(default_factory=dict)
    outside: dict[str, OutsideHandler] = field(default_factory=dict)  # to the broker
    slow: dict[str, OutsideHandler] = field(default_factory=dict)  # these may take seconds
    slow_looks: list[Callable[[], None]] = field(default_factory=list)  # the dispatcher's; each keeps its own time


wiring = Wiring()


def known_topics() -> list[str]:
    """Of the outbox. A message of any other was left by a newer version."""
    return [*wiring.inside, *wiring.outside, *wiring.slow]
