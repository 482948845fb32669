"""The fires and skips that a schedule owes, and how much work one transaction may do to find them."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import structlog

from triggers.exceptions import RuleError
from triggers.models import Schedule, Skip
from triggers.schedules.accounting import Stretch, together
from triggers.schedules.firing.claim import Claimed
from triggers.schedules.plan import Plan
from triggers.schedules.rules.interval import Interval

log = structlog.get_logger(__name__)
WORK = 1.0  # seconds in which one transaction works out what it writes: PostgreSQL ends those that stay idle for long
SLOW = 3.0  # seconds of one schedule, of the 5 for which PostgreSQL lets a transaction of Beat be idle
STEPS = 2000  # stretches of time that are accounted for of one schedule in one transaction; the rest stays owed
Reason, Rest, CatchUp = Skip.Reason, Schedule.Rest, Schedule.CatchUp


class TookTooLong(Exception):
    """Working out one schedule took so long that PostgreSQL ends the idle transaction. Nothing was written."""

    def __init__(self, id: int) -> None:
        super().__init__(f"working out schedule {id} took more than {SLOW:g} s")
        self.id = id


@dataclass(kw_only=True)
class Owed:
    """The fires and skips that a schedule owes; updated while they are worked out."""

    claimed: Claimed
    accounted: datetime
    spec: str
    anchor: datetime | None
    fires: list[tuple[datetime, datetime]] = field(default_factory=list)  # nominal and due
    skips: list[Stretch] = field(default_factory=list)
    next: datetime | None = None
    due: datetime | None = None
    rest: str = ""
    problem: str = ""
    retires: bool = False
    is_done: bool = False  # a one-shot that has fired and was not given another rule since
    unsettled: bool = False  # its past owes more than one transaction should hold

    @property
    def count(self) -> int:
        return len(self.fires)

    @property
    def last(self) -> datetime | None:
        return self.fires[-1][0] if self.fires else None

    def arm(self, plan: Plan, after: datetime) -> None:
        self.next = next(plan.fires(after), None)
        self.due = plan.due(self.next) if self.next else None
        self.rest = "" if self.next else Rest.OVER

    def retire(self, rest: str) -> None:
        self.next, self.due, self.rest, self.retires = None, None, rest, True

    def leave(self, now: datetime) -> None:
        """Leave it to another Beat: nothing of it is owed."""
        self.next, self.due, self.rest, self.accounted = None, None, Rest.FOREIGN, now

    def refuse(self, error: Exception) -> None:
        """Stop it until it is edited. A fault of one schedule must not keep the others from firing."""
        reason = _reason(error)
        log.error("beat.schedule_refused", schedule=self.claimed.name, reason=reason)
        self.next, self.due, self.rest, self.problem = None, None, Rest.PROBLEM, reason


class Budget:
    """The work that may still be done for one schedule in this transaction. At least one step is always done, so a
    schedule gets on however slow the machine is."""

    def __init__(self, until: float) -> None:
        self.steps = STEPS
        self.until = until  # by the process's clock

    def go_on(self) -> bool:
        """Count a step; is there room for another?"""
        self.steps -= 1
        return not self.is_spent

    @property
    def is_spent(self) -> bool:
        return self.steps <= 0 or time.monotonic() > self.until


def as_many(schedules: Sequence[Claimed], work: Callable[[Claimed, Budget], Owed]) -> list[Owed]:
    """Work on as many schedules as there is time for; the next batch does the others."""
    until = time.monotonic() + WORK
    owed: list[Owed] = []
    for schedule in schedules:
        began = time.monotonic()
        owed.append(work(schedule, Budget(until)))
        # Measured here: a session that PostgreSQL has ended does not always say why.
        if time.monotonic() - began > SLOW:
            raise TookTooLong(schedule.id)
        if time.monotonic() > until:
            break
    return owed


def used_up(owed: Owed) -> bool:
    most = owed.claimed.definition.max_fires
    return most is not None and owed.claimed.fires + owed.count >= most


def leave_to_the_other(owed: Owed, plan: Plan) -> Plan:
    """Account for what another scheduler has fired; an interval goes on from its last fire."""
    at = owed.claimed.ran_elsewhere
    if at is None or at <= owed.accounted:
        return plan
    owed.skips += together(plan, owed.accounted, at, Reason.ELSEWHERE)
    owed.accounted = at
    if isinstance(plan.rule, Interval):
        owed.anchor = at
        plan = replace(plan, rule=replace(plan.rule, anchor=at))
    return plan


def refused_stretch(first: datetime, last: datetime, error: Exception, count: int | None = None) -> Stretch:
    return Stretch(reason=Reason.REFUSED, first=first, last=last, count=count, detail=_reason(error))


def _reason(error: Exception) -> str:
    return (str(error) if isinstance(error, RuleError) else repr(error))[:500]
