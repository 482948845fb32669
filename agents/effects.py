"""What an agent leaves behind besides its own writes; collected while it runs, committed together with them."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal
from uuid import UUID

Urgency = Literal["low", "normal", "high"]


@dataclass(frozen=True, kw_only=True)
class Emission:
    """An event an agent emits."""

    type: str
    data: Any
    key: str
    subject: str = ""
    is_tainted: bool = False  # it was left behind by a run that had seen untrusted data


@dataclass(frozen=True, kw_only=True)
class Notice:
    """Something an agent wants a person to know."""

    text: str
    urgency: Urgency = "normal"


@dataclass(frozen=True, kw_only=True)
class Child:
    """A run that this one spawns. `at_once` above 0: of its siblings of that agent no more run at once."""

    id: UUID
    agent: str
    input: Any
    key: str
    at_once: int = 0
    is_tainted: bool = False


@dataclass(frozen=True, kw_only=True)
class Wake:
    """An alarm: the run's own trigger is to wake again so much later."""

    after: timedelta
    data: Any
    key: str
    reason: str = ""
    is_tainted: bool = False


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A schedule that an agent gives its own trigger; with neither `cron` nor `every`, the one of that name goes."""

    name: str
    cron: str = ""
    tz: str = "UTC"
    every: timedelta | None = None


@dataclass(frozen=True, kw_only=True)
class Pace:
    """The run's heartbeat is to come next so much later than the run ends; its schedule keeps that within bounds."""

    after: timedelta
    reason: str = ""


@dataclass
class Effects:
    emissions: list[Emission] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    children: list[Child] = field(default_factory=list)
    wakes: list[Wake] = field(default_factory=list)
    standings: list[Standing] = field(default_factory=list)
    paces: list[Pace] = field(default_factory=list)

    def extend(self, others: "Effects") -> None:
        for name, left in vars(others).items():
            getattr(self, name).extend(left)

    def __bool__(self) -> bool:
        return any(vars(self).values())
