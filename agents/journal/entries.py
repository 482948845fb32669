"""Entries of a journal as the engine writes and reads them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from agents.exceptions import StepFailed
from agents.journal.canonical import digest_of, match_of
from agents.journal.protocol import (
    ApprovalRequest,
    BudgetRequest,
    ChildrenRequest,
    EventRequest,
    Kind,
    ModelRequest,
    SessionRequest,
    TimeRequest,
    WaitRequest,
)

Status = Literal["started", "done", "failed"]
VALUE = "value"  # the effect of the run's own time, id or random number
RESULTS = "results of "  # prefix of the key of the value that records how children ended


@dataclass(frozen=True, kw_only=True)
class StepEntry:
    """A step or a value to write. `took` is the number of seconds since it began."""

    key: str
    position: int
    is_keyed: bool
    effect: str
    status: Status
    attempts: int = 1
    arguments: Any = None
    output: Any = None
    error: str = ""
    error_kind: str = ""
    is_permanent: bool = False
    took: float = 0.0
    kind: Kind = "step"
    usage: Mapping[str, Any] | None = None  # of a model request: see `agents.llm.costs.usage`

    @property
    def is_progress(self) -> bool:
        return self.status == "done" and self.effect != VALUE


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """A step or a value as a replay reads it."""

    key: str
    position: int
    is_keyed: bool
    effect: str
    status: str
    attempts: int
    text: str | None
    error: str
    error_kind: str
    is_permanent: bool

    @property
    def output(self) -> Any:
        return None if self.text is None else json.loads(self.text)

    @property
    def failure(self) -> StepFailed:
        return StepFailed(self.key, self.error_kind, self.error, permanent=self.is_permanent)


def recorded(entry: StepEntry) -> RecordedStep:
    """As a replay will read it."""
    return RecordedStep(
        key=entry.key,
        position=entry.position,
        is_keyed=entry.is_keyed,
        effect=entry.effect,
        status=entry.status,
        attempts=entry.attempts,
        text=json.dumps(entry.output),
        error=entry.error,
        error_kind=entry.error_kind,
        is_permanent=entry.is_permanent,
    )


@dataclass(frozen=True, kw_only=True)
class NewWait:
    """A wait to write. `is_new`: no earlier attempt has waited here."""

    key: str
    position: int
    is_new: bool
    request: WaitRequest

    @property
    def is_keyed(self) -> bool:
        return bool(self.request.place.key)


class RecordedWait(Protocol):
    """A wait as a replay reads it, over or not."""

    @property
    def key(self) -> str: ...
    @property
    def position(self) -> int: ...
    @property
    def is_keyed(self) -> bool: ...
    @property
    def is_over(self) -> bool: ...
    @property
    def sought(self) -> Sequence[str]:
        """What the wait waits for, in the form of `sought_by`."""

    @property
    def asked_about(self) -> Any:
        """The arguments that a person is shown; None if the wait is not a question."""

    def result(self) -> Any:
        """The event or the answer (nothing for a time or children); EXPIRED after a timeout."""

    def ends(self) -> list[dict[str, Any]]:
        """The outcome of each child, as JSON."""


def sought_by(request: WaitRequest) -> tuple[str, ...]:
    """The parts of a recorded wait that must equal the code's. A decision counts for its question and arguments only;
    the length of a sleep may change.
    """
    match request:
        case TimeRequest():
            return ("time",)
        case EventRequest():
            return ("event", request.type, *match_of(request.match, request.source))
        case ApprovalRequest():
            return ("approval", digest_of(request.question, request.arguments))
        case ChildrenRequest():
            return ("children", *map(str, request.children))
        case BudgetRequest():
            return ("budget",)
        case SessionRequest():
            return ("session",)
        case ModelRequest():
            return ("model",)
