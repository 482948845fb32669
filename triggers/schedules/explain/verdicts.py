"""`Question` and `Answer` of "Why did this not run?"."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from triggers.models import Decision, Schedule, Skip
from triggers.schedules.clock import just_before, say
from triggers.schedules.plans import Held
from triggers.schedules.rules.rule import latest_fire

MINUTE = timedelta(minutes=1)
LOOKED_BACK = [MINUTE * 4**step for step in range(11)]  # for the nominal time before the instant of the question


class Verdict(StrEnum):
    RAN = "ran"  # its event started a run
    NO_RUN = "no_run"  # its event started no run: a decision has the reason
    FIRED = "fired"  # its event has started nothing yet
    SENT = "sent"  # an ordinary task was sent to Celery
    SKIPPED = "skipped"  # a Skip has the reason
    NOT_MADE = "not_made"  # the schedule was created later
    NOT_STARTED = "not_started"  # before its start
    ENDED = "ended"  # after its end
    PAUSED = "paused"  # it was switched off
    RETIRED = "retired"  # it had fired as often as it may
    CLOSED = "closed"  # outside its active hours, or on an excluded day
    BROKEN = "broken"  # its rule was not valid
    NOT_NAMED = "not_named"  # its rule does not name this time
    TWICE = "twice"  # the clocks showed it for the second time
    TO_COME = "to_come"  # it is not due yet
    LATE = "late"  # it is due and has not fired yet
    FORGOTTEN = "forgotten"  # longer ago than retention keeps
    UNKNOWN = "unknown"  # no record is left


@dataclass(frozen=True, kw_only=True)
class WhyAnswer:
    """`text` is the answer in a sentence or two, `facts` are labels with values; `nearest` are the nominal times before and
    after by the rule of that time; ids and rows are the evidence."""

    verdict: Verdict
    text: str
    at: datetime
    zone: str
    nominal: datetime | None = None
    facts: list[tuple[str, str]] = field(default_factory=list)
    nearest: tuple[datetime | None, datetime | None] = (None, None)
    event_id: UUID | None = None
    run_id: UUID | None = None
    decision: Decision | None = None
    skip: Skip | None = None


@dataclass(frozen=True, kw_only=True)
class Question:
    """A stretch of time, from `start` on and before `end`, on the clock of a zone; the definition that held then, and the
    nominal time that it names in this stretch, if there is one."""

    schedule: Schedule
    start: datetime
    end: datetime
    zone: ZoneInfo
    note: str
    now: datetime
    history: Sequence[Held]
    held: Held
    nominal: datetime | None

    @property
    def time(self) -> datetime:
        return self.nominal or self.start

    @property
    def width(self) -> timedelta:
        return self.end - self.start

    @property
    def nearest(self) -> tuple[datetime | None, datetime | None]:
        return (self._before(), next(self.held.plan.raw(self.time), None)) if self.held.plan else (None, None)

    def say(self, instant: datetime) -> str:
        return say(instant, self.zone)

    def span(self, start: datetime, end: datetime, to: str) -> str:
        """Both instants as text, with the zone only once."""
        return f"{say(start, self.zone, with_zone=False)} {to} {self.say(end)}"

    def answer(self, verdict: Verdict, text: str, *facts: tuple[str, str], **evidence: Any) -> WhyAnswer:
        before, after = self.nearest
        shown = [("Asked", self.say(self.start)), ("Rule then", self.held.definition.describe()), *facts]
        around = [("Nominal time before", before), ("Nominal time after", after)]
        return WhyAnswer(
            verdict=verdict, text=f"{self.note} {text}".strip(), at=self.start, zone=str(self.zone), nominal=self.nominal,
            facts=shown + [(label, self.say(at)) for label, at in around if at], nearest=(before, after), **evidence,
        )  # fmt: skip

    def _before(self) -> datetime | None:
        plan = self.held.plan
        if plan is None:
            return None
        until = min(self.time, plan.end or self.time)
        firsts = (next(plan.raw(until - back), None) for back in LOOKED_BACK)
        first = next((first for first in firsts if first and first < until), None)
        return latest_fire(plan.rule, first, just_before(until)) if first else None
