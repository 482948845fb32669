"""The one way from a schedule to its plan: Beat, previews, backfills, heartbeats, *why* and the list of what wakes next
count an interval from the same instant.

1. Beat writes down what an interval counts from (`Schedule.anchor_at`), and for which rule and start (`spec`).
2. An edit of these, or a resume, starts a new grid: `Grid.follow`. It starts at the last fire of another scheduler, at
   the start of the schedule, or at the edit.
3. Until Beat has seen an edit, the revisions since then say which grid Beat will write.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from zoneinfo import ZoneInfo

from django.db.models import F, Prefetch
from django.db.models.functions import Coalesce

from runs.db.sql import database_now
from triggers.exceptions import RuleError
from triggers.models import Revision, Schedule
from triggers.schedules.clock import just_before
from triggers.schedules.definition import Definition, Draft
from triggers.schedules.plan import Plan
from triggers.schedules.rules.crontab import Cron
from triggers.schedules.rules.interval import Interval
from triggers.schedules.rules.once import Clocked

# The revisions that Beat has not accounted for. A list of schedules prefetches them.
UNSETTLED = Prefetch(
    "revisions",
    Revision.objects.filter(
        schedule__stale=True, until__gt=Coalesce(F("schedule__accounted_until"), F("schedule__created_at"))
    ).order_by("until", "id"),
    to_attr="unsettled",
)


@dataclass(frozen=True)
class Grid:
    """The instant that an interval counts from, and the rule and start (`spec`) that it belongs to."""

    spec: str = ""
    anchor: datetime | None = None

    def follow(self, definition: Definition, since: datetime, *, was_off: bool, elsewhere: datetime | None) -> "Grid":
        """The grid of the definition that holds since an instant, after this one. RuleError as `Definition.spec`."""
        spec = definition.spec
        if not isinstance(definition.rule(), Interval) or (spec == self.spec and not was_off and self.anchor):
            return Grid(spec, self.anchor)
        goes_on = elsewhere and (definition.start is None or definition.start < elsewhere)
        return Grid(spec, elsewhere if goes_on else definition.start or since)


@dataclass(frozen=True)
class Held:
    """A definition that held after `since` up to and including `until` (None: it still does), and the anchor of its interval."""

    definition: Definition
    since: datetime
    until: datetime | None
    anchor: datetime | None

    @cached_property
    def plan(self) -> Plan | None:
        """None: it has a problem."""
        with suppress(RuleError):
            return self.definition.plan(self.anchor)
        return None

    @property
    def problem(self) -> str:
        try:
            self.definition.plan(self.anchor)
        except RuleError as error:
            return str(error)
        return ""

    @property
    def zone(self) -> ZoneInfo:
        """The zone of the crontab; else of the active hours; else UTC."""
        with suppress(RuleError):
            return self.definition.clock
        return ZoneInfo("UTC")

    @property
    def follows_elapsed_time(self) -> bool:
        rule = self.plan and self.plan.rule
        return rule is not None and (rule.is_wildcard if isinstance(rule, Cron) else True)

    def names(self, start: datetime, end: datetime) -> datetime | None:
        """The first nominal time from `start` on and before `end` that its rule names; it may be closed, or switched off."""
        nominal = next(self.plan.raw(just_before(start)), None) if self.plan else None
        return nominal if nominal is not None and nominal < end else None

    def owns(self, start: datetime, end: datetime) -> datetime | None:
        """Like `names`, but only nominal times that this definition has to account for."""
        if self.until is None and self.plan and isinstance(self.plan.rule, Clocked):
            return self.names(start, end)  # however late its row came
        nominal = self.names(max(start, self.since + timedelta(microseconds=1)), end)
        return nominal if nominal and (self.until is None or nominal <= self.until) else None


def plan_of(source: Schedule | Draft) -> Plan:
    """When it fires while it is on, whether Beat has seen its last edit or not; RuleError if its rows have no valid rule."""
    definition = Definition.of(source)
    if isinstance(source, Draft):
        return definition.plan(definition.start or database_now())
    return definition.plan(_anchor(source, definition) if isinstance(definition.rule(), Interval) else None)


def history_of(schedule: Schedule) -> list[Held]:
    """Oldest first, without gaps; the last holds now."""
    history: list[Held] = []
    since, was_off, grid, written = schedule.created_at, False, Grid(), Grid()
    for revision in Revision.objects.filter(schedule=schedule.pk).order_by("until", "id"):
        definition = Definition.of(revision)
        if (told := Grid(str(definition.values.get("spec", "")), definition.anchor)) != written:
            grid, written, was_off = told, told, False  # Beat saw this definition before the next edit
        grid, _ = _step(grid, definition, since, was_off, elsewhere=None)
        history.append(Held(definition, since, revision.until, grid.anchor))
        since, was_off = revision.until, not definition.enabled
    current = Definition.of(schedule)
    return [*history, Held(current, since, None, _anchor(schedule, current))]


def fired_elsewhere(schedule: Schedule) -> datetime | None:
    return ran_elsewhere(schedule.task.last_run_at, schedule.fired_at)


def ran_elsewhere(last_run_at: datetime | None, fired_at: datetime | None) -> datetime | None:
    """When another scheduler fired a schedule last, if it has since Beat did."""
    return last_run_at if last_run_at and (fired_at is None or last_run_at > fired_at) else None


def is_done_elsewhere(plan: Plan, elsewhere: datetime | None) -> bool:
    """Is the schedule a one-shot that another scheduler has fired and has not switched off yet?"""
    return plan.once and elsewhere is not None and not (isinstance(plan.rule, Clocked) and plan.rule.at > elsewhere)


def next_fire(schedule: Schedule, plan: Plan) -> datetime | None:
    """The next nominal time of a schedule whose last edit Beat has seen: later than what another scheduler has fired."""
    first, elsewhere = schedule.next_fire_at, fired_elsewhere(schedule)
    if first is None or is_done_elsewhere(plan, elsewhere):
        return None
    return first if elsewhere is None or first > elsewhere else next(plan.fires(elsewhere), None)


def _anchor(schedule: Schedule, definition: Definition) -> datetime | None:
    """The anchor as Beat has it, or will have it after it has read the last edit."""
    elsewhere = fired_elsewhere(schedule)
    if not schedule.stale:
        is_left = elsewhere and schedule.next_fire_at and schedule.next_fire_at <= elsewhere
        return elsewhere if is_left else schedule.anchor_at
    past = _unsettled(schedule)
    grid = Grid(schedule.spec, schedule.anchor_at)
    accounted = schedule.accounted_until or (schedule.created_at if past else schedule.edited_at)
    was_off = False
    for one, until in [*((Definition.of(revision), revision.until) for revision in past), (definition, None)]:
        if until is None or until > accounted:
            grid, accounted = _step(grid, one, accounted, was_off, elsewhere)
            accounted = max(accounted, until or accounted)
        was_off = not one.enabled
    return grid.anchor


def _step(
    grid: Grid, definition: Definition, accounted: datetime, was_off: bool, elsewhere: datetime | None
) -> tuple[Grid, datetime]:
    try:
        grid = grid.follow(definition, accounted, was_off=was_off, elsewhere=elsewhere)
        is_interval = isinstance(definition.rule(), Interval)
    except RuleError:
        return grid, accounted
    if elsewhere is None or elsewhere <= accounted:
        return grid, accounted
    return (replace(grid, anchor=elsewhere) if is_interval else grid), elsewhere


def _unsettled(schedule: Schedule) -> Sequence[Revision]:
    listed: Sequence[Revision] = getattr(schedule, "unsettled", ())
    if listed or (hasattr(schedule, "unsettled") and schedule.accounted_until is None):
        return listed
    # As of the moment when the schedule was read: Beat may have accounted for its edits since.
    begun = schedule.accounted_until or schedule.created_at
    return list(schedule.revisions.filter(until__gt=begun).order_by("until", "id"))
