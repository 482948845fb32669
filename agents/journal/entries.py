"""Entries of a journal, as the engine writes and reads them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from agents.exceptions import StepFailed
from agents.journal.canonical import digest_of, match_of
from agents.journal.protocol import ApprovalWish, BudgetWish, ChildrenWish, EventWish, Kind, TimeWish, WaitWish

Status = Literal["started", "done", "failed"]
VALUE = "value"  # the effect of the run's own time, id or random number
RESULTS = "results of "  # begins the key of the value that says how children ended


@dataclass(frozen=True, kw_only=True)
class StepEntry:
    """A step or a value, as it is to be written. `took` is how long ago it was begun."""

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
    usage: Mapping[str, Any] | None = None  # of a model request: see `agents.llm.usage`

    @property
    def is_progress(self) -> bool:
        return self.status == "done" and self.effect != VALUE


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """A step or a value, as a replay meets it."""

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


@dataclass(frozen=True, kw_only=True)
class NewWait:
    """A wait, as it is to be written. `is_new`: no earlier attempt has waited here."""

    key: str
    position: int
    is_new: bool
    wish: WaitWish

    @property
    def is_keyed(self) -> bool:
        return bool(self.wish.place.key)


class RecordedWait(Protocol):
    """A wait as a replay meets it, over or not."""

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
        """What it waits for, as `sought_by` says it of a wish."""

    def result(self) -> Any:
        """What came, but for children; EXPIRED where nothing did."""

    def ends(self) -> list[dict[str, Any]]:
        """How each of the children ended, as JSON."""


def sought_by(wish: WaitWish) -> tuple[str, ...]:
    """What a wish is bound to. An approval is good for what was asked, and nothing else; a sleep may be changed."""
    match wish:
        case TimeWish():
            return ("time",)
        case EventWish():
            return ("event", wish.type, *match_of(wish.match, wish.source))
        case ApprovalWish():
            return ("approval", digest_of(wish.question, wish.arguments))
        case ChildrenWish():
            return ("children", *map(str, wish.children))
        case BudgetWish():
            return ("budget",)
