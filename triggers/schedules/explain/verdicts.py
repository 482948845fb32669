"""What is asked of a schedule, and the answer."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from triggers.models import Decision, Schedule, Skip
from triggers.schedules.clock import just_before, say
from triggers.schedules.plan import Plan
from triggers.schedules.plans import Period
from triggers.schedules.rules.rule import latest_fire

MINUTE = timedelta(minutes=1)
LOOKED_BACK = timedelta(days=5 * 366)  # for the nominal time before the one asked for


class Verdict(StrEnum):
    RAN = "ran"  # its event became a run
    NO_RUN = "no_run"  # its event became no run: a decision says why
    FIRED = "fired"  # there is an event, and nothing has come of it yet
    SENT = "sent"  # an ordinary task was handed to Celery
    SKIPPED = "skipped"  # a Skip says why
    NOT_MADE = "not_made"  # there was no such schedule yet
    NOT_STARTED = "not_started"  # before its start
    ENDED = "ended"  # after its end
    PAUSED = "paused"  # it was switched off
    RETIRED = "retired"  # it had fired as often as it was to
    CLOSED = "closed"  # outside its active hours, or on an excluded day
    BROKEN = "broken"  # its rule could not be carried out
    NOT_NAMED = "not_named"  # its rule does not name this time
    TWICE = "twice"  # the clocks showed it for the second time
    TO_COME = "to_come"  # it is not due yet
    LATE = "late"  # it is due and has not fired yet
    FORGOTTEN = "forgotten"  # longer ago than retention keeps
    UNKNOWN = "unknown"  # nothing is left that tells


@dataclass(frozen=True, kw_only=True)
class Answer:
    """`text` says it in a sentence or two, `facts` are labels with what they say; `nearest` are the nominal times before
    and after by the rule of that time; the ids and rows are where to look."""

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
    """A stretch of time, from `start` on and before `end`, on the clock of a zone: the nominal time in it, if there is one,
    and the period that has to account for it, or else that held at its start."""

    schedule: Schedule
    start: datetime
    end: datetime
    zone: ZoneInfo
    note: str
    now: datetime
    periods: Sequence[Period]
    period: Period
    nominal: datetime | None

    def say(self, instant: datetime) -> str:
        return say(instant, self.zone)

    def span(self, start: datetime, end: datetime, to: str) -> str:
        """Both instants, with the zone said once."""
        return f"{say(start, self.zone, with_zone=False)} {to} {self.say(end)}"

    @property
    def time(self) -> datetime:
        return self.nominal or self.start


def answer(question: Question, verdict: Verdict, text: str, *facts: tuple[str, str], **links: Any) -> Answer:
    state = question.period.definition
    before, after = nearest(question)
    shown = [("Asked", question.say(question.start)), ("Rule then", state.describe()), *facts]
    if before:
        shown.append(("Nominal time before", question.say(before)))
    if after:
        shown.append(("Nominal time after", question.say(after)))
    return Answer(
        verdict=verdict,
        text=f"{question.note} {text}".strip(),
        at=question.start,
        zone=str(question.zone),
        nominal=question.nominal,
        facts=shown,
        nearest=(before, after),
        **links,
    )


def nearest(question: Question) -> tuple[datetime | None, datetime | None]:
    plan = question.period.plan
    if plan is None:
        return None, None
    return _before(plan, question.time), next(plan.raw(question.time), None)


def _before(plan: Plan, time: datetime) -> datetime | None:
    if plan.end:
        time = min(time, plan.end)
    span = MINUTE
    while span < LOOKED_BACK:
        first = next(plan.raw(time - span), None)
        if first is not None and first < time:
            return latest_fire(plan.rule, first, just_before(time))
        span *= 4
    return None
