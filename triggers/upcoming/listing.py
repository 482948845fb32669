"""Upcoming wakes and their times: schedules, wakes that runs have set, windows that close, starts of meetings, timers of
waiting runs, delayed runs.

Each kind is read by the index on its time, up to the requested number of rows: a million schedules cost as much as ten.
A filter searches the first SEEN rows of a kind.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import islice, takewhile
from typing import Any
from uuid import UUID

from django.db.models import Q, prefetch_related_objects

from agents.kernel.durations import in_words
from runs.db.sql import database_now, fetch
from triggers.exceptions import RuleError
from triggers.models import Schedule
from triggers.schedules.clock import just_before
from triggers.schedules.plan import Plan
from triggers.schedules.plans import next_fire, plan_of
from triggers.schedules.reminders import text_of
from triggers.schedules.rows import RELATED
from triggers.schedules.rules.rows import rule_of
from triggers.schedules.rules.rule import Rule
from triggers.upcoming.entry import BY_CLOCK, KINDS, MEETING, Coming, Span, soonest
from triggers.upcoming.meetings import meetings
from triggers.upcoming.run_wakes import put_off, timers, wakes, windows

REPEATS = 100  # further times of one schedule that are computed
WALKED = 1000  # fires of a schedule with max_fires that are counted before a future day

PACES = """
SELECT wanted.id, entry.by, entry.detail FROM unnest(%s::bigint[]) AS wanted(id)
CROSS JOIN LATERAL (
  SELECT audit.by, audit.detail FROM runs_auditentry audit
  WHERE audit.kind = 'schedule' AND audit.object_id = wanted.id::text AND audit.action = 'pace'
  ORDER BY audit.at DESC LIMIT 1) entry
"""


def ahead(
    start: datetime, until: datetime, limit: int, *, kinds: Iterable[str] = KINDS, agent: str = ""
) -> list[Coming]:
    """The first `limit` entries between `start` and `until`, soonest first, each schedule once. If `start` is not in the
    future, late entries are included."""
    wanted, span = frozenset(kinds), Span(start=start, until=until, now=database_now())
    found = _by_clock(span, limit, wanted, agent) if wanted & set(BY_CLOCK) else []
    found += not_by_clock(span, limit, wanted, agent)
    return sorted(found, key=lambda one: (one.at, one.name))[:limit]


def not_by_clock(span: Span, limit: int, wanted: frozenset[str], agent: str) -> list[Coming]:
    """Up to `limit` entries of each kind that is not a schedule, in no order."""
    found: list[Coming] = []
    if "wake" in wanted:
        found += wakes(span, limit, agent)
    if "window" in wanted:
        found += windows(span, limit, agent)
    if MEETING in wanted:
        found += meetings(span, limit, agent)
    if "timer" in wanted:
        found += timers(span, limit, agent)
    if wanted & {"retry", "start"}:
        found += [one for one in put_off(span, limit, agent) if one.kind in wanted]
    return found


# By the clock


@dataclass(frozen=True)
class Clock:
    """The future fires of a schedule."""

    schedule: Schedule
    plan: Plan

    def within(self, span: Span, most: int) -> list[tuple[datetime, datetime]]:
        """Up to `most` nominal and due times; the first one may be late."""
        first = next_fire(self.schedule, self.plan)
        if first is None:
            return []
        due = self.plan.due(first)
        found = [(first, due)] if due < span.until and (due >= span.start or not span.is_to_come) else []
        if not self.plan.once:
            found += self._later(self.plan, first, span, most - len(found))
        return found[:most]

    def _later(self, plan: Plan, first: datetime, span: Span, most: int) -> list[tuple[datetime, datetime]]:
        if self.schedule.max_fires is not None:
            # Only counting shows which fire is its last.
            left = self.schedule.max_fires - self.schedule.fires - 1
            fires: Iterator[datetime] = islice(plan.fires(first), max(0, min(left, WALKED)))
        elif span.start > first:
            # Each fire is due before the next nominal time.
            fires = plan.fires(max(first, just_before(plan.newest(first, span.start))))
        else:
            fires = plan.fires(first)
        dues = ((nominal, plan.due(nominal)) for nominal in takewhile(lambda nominal: nominal < span.until, fires))
        return list(islice((one for one in dues if span.start <= one[1] < span.until), most))


def clocks(schedules: Sequence[Schedule]) -> list[Clock]:
    """The clocks of schedules that were read with RELATED; one query for the calendars of all. A schedule whose rows have
    just become invalid is left out: Beat will record its problem."""
    prefetch_related_objects(schedules, "exclude")
    found: list[Clock] = []
    for schedule in schedules:
        with suppress(RuleError):
            found.append(Clock(schedule, plan_of(schedule)))
    return found


def soonest_schedules(
    span: Span, limit: int, kinds: frozenset[str] = frozenset(KINDS), agent: str = ""
) -> list[Schedule]:
    """The schedules that fire first in a time span; if it lies in the future, also those whose next fire is in it."""
    armed = Schedule.objects.filter(stale=False, due_at__isnull=False)
    only = only_those(kinds, agent)
    stretches = [armed.filter(due_at__lt=span.until)]
    if span.is_to_come:
        stretches = [armed.filter(due_at__lt=span.start), armed.filter(due_at__gte=span.start, due_at__lt=span.until)]
    return [one for rows in stretches for one in soonest(rows, "due_at", limit, only).select_related(*RELATED)]


def only_those(kinds: frozenset[str], agent: str) -> Q:
    """The filter of schedules by kind and agent; empty if there is none."""
    only = Q()
    if not kinds >= set(BY_CLOCK):
        only = Q(trigger__isnull=False, kind__in=sorted(kinds & {"schedule", "heartbeat", "reminder"}))
        only = only | Q(trigger=None) if "task" in kinds else only
    return only & Q(trigger__agent=agent) if agent else only


def _by_clock(span: Span, limit: int, kinds: frozenset[str], agent: str) -> list[Coming]:
    found = clocks(soonest_schedules(span, limit, kinds, agent))
    paces = _paces([clock.schedule for clock in found])
    return [coming for clock in found if (coming := _of_clock(clock, span, paces))]


def _of_clock(clock: Clock, span: Span, paces: Mapping[int, tuple[str, dict[str, Any]]]) -> Coming | None:
    times = clock.within(span, REPEATS + 2)
    if not times:
        return None
    (nominal, at), *later = times
    schedule, trigger = clock.schedule, clock.schedule.trigger
    by, pace = paces.get(schedule.pk, ("", {}))
    return Coming(
        at=at,
        nominal=nominal,
        kind=kind_of(schedule),
        name=schedule.task.name,
        agent=trigger.agent if trigger else "",
        trigger=trigger.slug if trigger else "",
        why=_why(clock, pace),
        later=tuple(due for _, due in later[:REPEATS]),
        is_endless=len(later) > REPEATS,
        schedule_id=schedule.pk,
        trigger_id=schedule.trigger_id,
        run_id=UUID(by.removeprefix("run:")) if by else None,
    )


def kind_of(schedule: Schedule) -> str:
    """The kind of the entry; `task` is an ordinary periodic task, which wakes no agent."""
    return str(schedule.kind) if schedule.trigger_id else "task"


def _why(clock: Clock, pace: dict[str, Any]) -> str:
    schedule, trigger = clock.schedule, clock.schedule.trigger
    said = text_of(schedule) or _words(rule_of(schedule.task))
    if pace:
        said += f"; its agent requested {in_words(timedelta(seconds=pace['asked'])) if pace['asked'] else 'at once'}"
        said += (
            f", and was given {in_words(timedelta(seconds=pace['given']))}" if pace["asked"] != pace["given"] else ""
        )
        said += f": {pace['reason']}" if pace["reason"] else ""
    if trigger and not trigger.enabled:
        return f"{said}; its trigger is off, so nothing wakes"
    if trigger and trigger.paused_at:
        return f"{said}; its trigger is paused, so the event is held"
    return said


@lru_cache(1000)
def _words(rule: Rule) -> str:
    return rule.words


def _paces(schedules: Sequence[Schedule]) -> dict[int, tuple[str, dict[str, Any]]]:
    """Heartbeats whose next time their agent has set: the setting run, and the requested pace."""
    # If its anchor is its next time, a run set it, or it has not begun.
    paced = [one.pk for one in schedules if one.kind == Schedule.Kind.HEARTBEAT and one.anchor_at == one.next_fire_at]
    return {id: (by, json.loads(detail)) for id, by, detail in fetch(PACES, [paced])} if paced else {}
