"""An agent's effects besides its own writes: collected while it runs, committed together with them."""

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Literal
from uuid import UUID

from agents.kernel.reply_place import ReplyPlace

Urgency = Literal["low", "normal", "high"]


@dataclass(frozen=True, kw_only=True)
class Emission:
    """An event an agent emits."""

    type: str
    data: Any
    key: str
    subject: str = ""
    is_tainted: bool = False  # a run left it behind that had seen untrusted data before its commit


@dataclass(frozen=True, kw_only=True)
class Notice:
    """A notification to people: to those named in `to`, or to everyone who gets notifications without recipients. `is_tainted`: the run
    has seen untrusted data."""

    text: str
    urgency: Urgency = "normal"
    topic: str = ""
    link: str = ""
    to: tuple[str, ...] = ()
    is_tainted: bool = False


@dataclass(frozen=True, kw_only=True)
class Reply:
    """An answer to a message that woke the run."""

    text: str
    place: ReplyPlace
    is_tainted: bool = False


@dataclass(frozen=True, kw_only=True)
class Child:
    """A run to spawn. `at_once` above 0 limits how many of this run's children of that agent run at the same time."""

    id: UUID
    agent: str
    input: Any
    key: str
    at_once: int = 0
    is_tainted: bool = False


@dataclass(frozen=True, kw_only=True)
class Wake:
    """An alarm: wake the run's own trigger again after this time."""

    after: timedelta
    data: Any
    key: str
    reason: str = ""
    is_tainted: bool = False


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A schedule of the agent's own trigger; without `cron` and `every`, the schedule of that name is deleted. `spacing`: it must
    not fire more often than this."""

    name: str
    cron: str = ""
    tz: str = "UTC"
    every: timedelta | None = None
    spacing: timedelta | None = None


@dataclass(frozen=True, kw_only=True)
class Pace:
    """The time from the end of the run to its next heartbeat; the schedule keeps it within its bounds."""

    after: timedelta
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Written:
    """A value of the agent's state, or a note of its memory, that was written while the run was not tainted."""

    kind: Literal["value", "note"]
    name: str
    is_tainted: bool = False


@dataclass(frozen=True, kw_only=True)
class ItemLook:
    """The outcome of checking an item of a checklist, if it failed or follows a failure; `error` is empty if it did not
    fail.
    """

    item: int
    text: str
    error: str = ""


@dataclass
class Effects:
    emissions: list[Emission] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    children: list[Child] = field(default_factory=list)
    wakes: list[Wake] = field(default_factory=list)
    standings: list[Standing] = field(default_factory=list)
    paces: list[Pace] = field(default_factory=list)
    written: list[Written] = field(default_factory=list)
    looks: list[ItemLook] = field(default_factory=list)

    def extend(self, others: "Effects") -> None:
        for name, left in vars(others).items():
            getattr(self, name).extend(left)

    def taint(self) -> None:
        """Effects of one commit share its taint, in whatever order the body made them."""
        self.notices = [replace(notice, is_tainted=True) for notice in self.notices]
        self.replies = [replace(reply, is_tainted=True) for reply in self.replies]
        self.emissions = [replace(emission, is_tainted=True) for emission in self.emissions]
        self.children = [replace(child, is_tainted=True) for child in self.children]
        self.wakes = [replace(wake, is_tainted=True) for wake in self.wakes]
        self.written = [replace(one, is_tainted=True) for one in self.written]

    @property
    def tainted(self) -> dict[str, list[str]]:
        """The names of the values and the keys of the notes that the commit has tainted."""
        found: dict[str, list[str]] = {"values": [], "notes": []}
        for one in self.written:
            if one.is_tainted:
                found[f"{one.kind}s"].append(one.name)
        return found

    def __bool__(self) -> bool:
        return any(vars(self).values())
