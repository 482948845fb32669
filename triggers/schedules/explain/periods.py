"""What decided when a schedule fires, from when until when, and who changed it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q

from runs.models import AuditEntry
from triggers.exceptions import RuleError
from triggers.models import Revision, Schedule
from triggers.schedules.clock import just_before
from triggers.schedules.definition import State, states_of
from triggers.schedules.plan import Plan
from triggers.schedules.rules.once import Clocked

# An audit entry bears the time at which its transaction began, a revision the moment of the edit in it.
LONGEST_EDIT = timedelta(seconds=2)
NO_EDITS = ("fire", "backfill", "cancel")


@dataclass(frozen=True, kw_only=True)
class Period:
    """What held after `since` up to and including `until` (None: it still does); without a plan there is a problem."""

    state: State
    since: datetime
    until: datetime | None
    plan: Plan | None
    problem: str = ""

    def holds_at(self, instant: datetime) -> bool:
        return self.since < instant and (self.until is None or instant <= self.until)

    def named(self, start: datetime, end: datetime) -> datetime | None:
        """The first nominal time from `start` on and before `end` that its rule names; it may be closed, or switched off."""
        return None if self.plan is None else _first(self.plan, start, end)

    def owns(self, start: datetime, end: datetime) -> datetime | None:
        """The same of those nominal times that this period, and no other, has to account for."""
        if self.plan is None:
            return None
        if self.until is None and isinstance(self.plan.rule, Clocked):
            return _first(self.plan, start, end)  # however late its row came
        if self.since >= end or (self.until is not None and self.until < start):
            return None
        nominal = _first(self.plan, max(start, self.since + timedelta(microseconds=1)), end)
        return nominal if nominal and self.holds_at(nominal) else None


@dataclass(frozen=True, kw_only=True)
class Change:
    """An edit of what decides when a schedule fires: who made it, and what they noted."""

    at: datetime
    by: str
    note: str = ""


def periods_of(schedule: Schedule) -> list[Period]:
    """Oldest first, without gaps; the last is what holds now."""
    periods: list[Period] = []
    for state, since, until in states_of(schedule):
        was_off = bool(periods) and not periods[-1].state.enabled
        periods.append(_period(state, since, until, was_off))
    return periods


def stretch_of(periods: Sequence[Period], period: Period) -> tuple[datetime, datetime | None]:
    """From when until when it was switched on, or off, as it is in this period."""
    first = last = periods.index(period)
    while first > 0 and periods[first - 1].state.enabled == period.state.enabled:
        first -= 1
    while last + 1 < len(periods) and periods[last + 1].state.enabled == period.state.enabled:
        last += 1
    return periods[first].since, periods[last].until


def change_at(schedule: Schedule, instant: datetime) -> Change | None:
    """Who made the edit of an instant: by the audit log, else whom the database saw; None if it does not know."""
    calendars = [str(id) for id in schedule.exclude.values_list("id", flat=True)]
    about = (
        Q(kind="schedule", object_id=str(schedule.pk))
        | Q(kind="periodictask", object_id=str(schedule.task_id))
        | Q(kind="trigger", object_id=str(schedule.trigger_id))
        | Q(kind="exclusioncalendar", object_id__in=calendars)
    )
    entries = AuditEntry.objects.filter(about, at__gte=instant - LONGEST_EDIT, at__lte=instant)
    of_trigger = Q(kind="trigger", action__in=("pause", "resume"))
    entry = entries.exclude(Q(action__in=NO_EDITS) | of_trigger).order_by("-at", "-id").first()
    if entry:
        note = entry.detail.get("note") or entry.detail.get("reason") or ""
        return Change(at=instant, by=entry.by, note=str(note))
    revision = Revision.objects.filter(schedule=schedule.pk, until=instant).first()
    return Change(at=instant, by=f"somebody in the database ({revision.by})") if revision else None


def _period(state: State, since: datetime, until: datetime | None, was_off: bool) -> Period:
    try:
        plan = state.plan(_anchor(state, since, was_off))
    except RuleError as error:
        return Period(state=state, since=since, until=until, plan=None, problem=str(error))
    return Period(state=state, since=since, until=until, plan=plan)


def _anchor(state: State, since: datetime, was_off: bool) -> datetime | None:
    """What an interval counts from, where Beat had not come to work it out before the next edit; None: its own."""
    anchor = state.anchor
    is_worked_out = state.values.get("spec") == state.spec and not (was_off and anchor and anchor < since)
    return None if is_worked_out else state.start or since


def _first(plan: Plan, start: datetime, end: datetime) -> datetime | None:
    nominal = next(plan.raw(just_before(start)), None)
    return nominal if nominal is not None and nominal < end else None
