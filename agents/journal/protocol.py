"""The requests of a durable agent to its journal, and the answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, Literal, get_args
from uuid import UUID

from agents.exceptions import Permanent
from agents.guards.storable import storable
from agents.journal.budget import Cost

Effect = Literal["transactional", "read", "idempotent", "at_most_once"]
OnExpiry = Literal["deny", "fail"]
Kind = Literal["step", "llm", "model", "tool"]  # llm: the beginning of a call of run.llm
KEY_LENGTH = 200


def fitting(key: str, beside: str) -> str:
    """The key, shortened where it is too long for an entry whose name is `beside`; a shortened key is still unique."""
    if len(key) + len(beside) <= KEY_LENGTH:
        return key
    return f"{key[:40]} {sha256(key.encode()).hexdigest()[:32]}"


@dataclass(frozen=True, kw_only=True)
class Place:
    """An entry of the journal: a name, and a key if the name is used more than once or in parallel. `is_numbered`: without a
    key, the entries of this name are numbered."""

    name: str
    key: str = ""
    is_numbered: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise Permanent(f"a step's name must be a non-empty text, not {self.name!r}")
        if len(self.name) + len(self.key) > KEY_LENGTH:
            raise Permanent(f"step {self.name[:50]!r}: name and key have over {KEY_LENGTH} characters")
        storable([self.name, self.key], f"the key of {self.name!r}")


@dataclass(frozen=True, kw_only=True)
class StepRequest:
    """Run this step once. `retries` come after the first try; `timeout` limits one try."""

    place: Place
    effect: Effect = "transactional"
    retries: int = 0
    timeout: timedelta | None = None
    arguments: Sequence[Any] = ()
    kind: Kind = "step"
    cost: Cost | None = None  # the most that it may cost, where a budget must have room for it
    is_dangerous: bool = False  # of a tool: in a tainted run, a person has approved this call

    def __post_init__(self) -> None:
        if self.effect not in get_args(Effect):
            raise Permanent(
                f"step {self.place.name!r}: effect {self.effect!r} is not one of {', '.join(get_args(Effect))}"
            )
        if self.retries < 0:
            raise Permanent(f"step {self.place.name!r}: retries must not be negative")
        if self.retries and self.effect == "at_most_once":
            raise Permanent(f"step {self.place.name!r}: an at_most_once step cannot be repeated; leave out retries")

    @property
    def seconds(self) -> float | None:
        return None if self.timeout is None else self.timeout.total_seconds()


@dataclass(frozen=True, kw_only=True)
class TimeRequest:
    """Wait for a duration, or until an instant."""

    place: Place
    duration: timedelta | None = None
    until: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class EventRequest:
    """Wait for an event of this type whose data has these values at these paths ("customer.id"), from any source or from the
    source with this slug."""

    place: Place
    type: str
    match: Mapping[str, Any]
    source: str = ""
    timeout: timedelta | None = None


@dataclass(frozen=True, kw_only=True)
class ApprovalRequest:
    """Wait until a person has decided."""

    place: Place
    question: str
    detail: str
    arguments: Any
    expires: timedelta | None = None
    on_expiry: OnExpiry = "deny"


@dataclass(frozen=True, kw_only=True)
class ChildrenRequest:
    """Wait until these runs have finished."""

    place: Place
    children: Sequence[UUID]
    timeout: timedelta | None = None


@dataclass(frozen=True, kw_only=True)
class BudgetRequest:
    """Wait until the budgets of the run have room for this cost: until `until`, or until a cap is raised."""

    place: Place
    cost: Cost
    budget: str
    reason: str
    until: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class SessionRequest:
    """Wait until no other run takes a turn in this session."""

    place: Place
    session: str
    reason: str
    timeout: timedelta


@dataclass(frozen=True, kw_only=True)
class ModelRequest:
    """Wait until another process has made this request to a model. `step`: the entry of the journal that its answer becomes."""

    place: Place
    step: Mapping[str, Any]
    content: Mapping[str, Any]
    reason: str


WaitRequest = (
    TimeRequest | EventRequest | ApprovalRequest | ChildrenRequest | BudgetRequest | SessionRequest | ModelRequest
)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The decision on an approval: true if it was granted. Use its `arguments`: the person may have edited them."""

    decision: Literal["approved", "edited", "denied", "expired"]
    arguments: Any = None
    by: str = ""
    reason: str = ""

    def __bool__(self) -> bool:
        return self.decision in ("approved", "edited")


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The outcome of a child run: succeeded with its result, or failed or cancelled with its error. `is_tainted`: the
    child had seen untrusted data.
    """

    status: str
    result: Any = None
    error: str = ""
    is_tainted: bool = False


class Expired:
    """The result of a wait that timed out."""


EXPIRED = Expired()
