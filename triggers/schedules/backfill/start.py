"""Start a backfill: validate its range, and count what it will fire."""

from datetime import datetime, timedelta
from itertools import islice

from django.conf import settings
from django.db import transaction

from agents.kernel.durations import in_words
from runs.db.sql import database_now, fetch
from runs.models.audit import record
from triggers.exceptions import RuleError, TriggerDisabled
from triggers.models import Backfill, Schedule, Trigger
from triggers.schedules.backfill.ticks import in_utc, nominal_times, plan_from
from triggers.schedules.clock import EARLIEST

NOTIFY = "SELECT pg_notify('wakeful_beat', '')"
MOST = 100_000  # nominal times of one backfill
LONGEST = timedelta(days=3660)  # of its range
LEAST_URGENT = 9


def start_backfill(
    schedule: Schedule,
    *,
    start: datetime,
    end: datetime,
    at_once: int = 1,
    priority: int | None = None,
    again: bool = False,
    by: str,
) -> Backfill:
    """Fire the schedule for its nominal times from `start` on and before `end`, at most `at_once` runs at a time, in the
    order of these times. An instant without an offset is in the schedule's zone; `priority` None is the least urgent;
    `again` fires also what has fired; without it, a range that reaches further back than the record of fires is refused.

    Raises RuleError, whose `field` names what makes no sense, or TriggerDisabled. A paused schedule may be backfilled.
    """
    trigger = _trigger_of(schedule)
    priority = LEAST_URGENT if priority is None else priority
    _refuse_numbers(at_once, priority)
    start, end = in_utc(schedule, start, "start"), in_utc(schedule, end, "end")
    _refuse_range(start, end)
    if not again:
        _refuse_forgotten(schedule, start, end)
    total = _count(schedule, start, end)
    with transaction.atomic():
        backfill = Backfill.objects.create(
            schedule=schedule, start=start, end=end, again=again, at_once=at_once, priority=priority, position=start,
            total=total, by=by,
        )  # fmt: skip
        record(
            by, "backfill", schedule, name=schedule.task.name, backfill=str(backfill.pk), start=start.isoformat(),
            end=end.isoformat(), at_once=at_once, priority=priority, again=again, total=total, trigger=trigger.slug,
        )  # fmt: skip
        fetch(NOTIFY)
    return Backfill.objects.get(pk=backfill.pk)


def _trigger_of(schedule: Schedule) -> Trigger:
    trigger = schedule.trigger
    if trigger is None:
        raise RuleError(
            f"{schedule} is an ordinary periodic task: it sends a message, and its result is not tracked."
            " Only a schedule that wakes an agent can be backfilled",
            field="schedule",
        )
    if schedule.kind == Schedule.Kind.HEARTBEAT:
        raise RuleError(
            f"{schedule} is a heartbeat: it checks the current state, so there is nothing to backfill", field="schedule"
        )
    if not trigger.enabled:
        raise TriggerDisabled(trigger.slug)
    return trigger


def _refuse_numbers(at_once: int, priority: int) -> None:
    if not 1 <= at_once <= 1000:
        raise RuleError(f"{at_once} runs at once; choose from 1 to 1000", field="at_once")
    if not 0 <= priority <= LEAST_URGENT:
        raise RuleError(f"priority {priority}; 0 is most urgent, {LEAST_URGENT} least", field="priority")


def _refuse_range(start: datetime, end: datetime) -> None:
    if start >= end:
        raise RuleError("the range ends before it begins", field="end")
    if end > (now := database_now()):
        raise RuleError(
            f"the range must be past; it is {now:%Y-%m-%d %H:%M:%S} UTC, and it ends {end:%Y-%m-%d %H:%M:%S} UTC",
            field="end",
        )
    if end - start > LONGEST:
        raise RuleError("the range is longer than ten years; choose a shorter one", field="start")


def _refuse_forgotten(schedule: Schedule, start: datetime, end: datetime) -> None:
    since = remembered_since(schedule)
    if start < min(since, end):
        raise RuleError(
            f"events are kept for {in_words(settings.WAKEFUL_KEEP_EVENTS)} (WAKEFUL_KEEP_EVENTS), so what fired before"
            f" {since:%Y-%m-%d %H:%M:%S} UTC is no longer known and would fire twice; give a later start, or again"
            " (--again) to fire all of it once more",
            field="start",
        )


def remembered_since(schedule: Schedule) -> datetime:
    """The nominal time from which on the events of all fires are still kept; none fired before the schedule was
    created.
    """
    since: datetime = database_now() - settings.WAKEFUL_KEEP_EVENTS
    return EARLIEST if schedule.created_at >= since else since


def _count(schedule: Schedule, start: datetime, end: datetime) -> int:
    total = sum(1 for _ in islice(nominal_times(plan_from(schedule, start), start, end), MOST + 1))
    if total > MOST:
        raise RuleError(f"the range has more than {MOST:,} nominal times; choose a shorter one", field="end")
    if not total:
        raise RuleError("the range has no nominal time of this schedule", field="start")
    return total
