"""The nominal times of a backfill become events, unless they have fired before."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import takewhile
from uuid import UUID

from runs.db.nudge import nudge_dispatcher
from runs.db.sql import fetch
from triggers.accept import Incoming, accept_own, builtin_source
from triggers.exceptions import RuleError
from triggers.models import Backfill, BackfillTick, Schedule
from triggers.schedules.clock import just_before
from triggers.schedules.definition import Definition
from triggers.schedules.explain.trail import names_of
from triggers.schedules.firing.record import event_of
from triggers.schedules.plan import Plan
from triggers.schedules.plans import plan_of
from triggers.schedules.rules.interval import Interval
from triggers.schedules.rules.rule import Rule

EVENTS = """
SELECT "time", id, coalesce(data->>'backfill' = %s::text, false) FROM triggers_event
WHERE source_id = %s::uuid AND ce_source = ANY(%s::text[]) AND ce_id = ANY(%s::text[]) ORDER BY "time"
"""
Outcome = BackfillTick.Outcome


def in_utc(schedule: Schedule, at: datetime, field: str) -> datetime:
    """An instant; one without an offset is in the schedule's zone. RuleError about this field if no clock shows it."""
    try:
        return (at if at.tzinfo else at.replace(tzinfo=Definition.of(schedule).zone)).astimezone(UTC)
    except OverflowError:
        raise RuleError(f"{at} leaves the calendar", field=field) from None


def plan_from(schedule: Schedule, start: datetime) -> Plan:
    """When it fires, as its rows are now, from an instant on; an interval's grid goes on into the past of its anchor.
    RuleError if it cannot be carried out."""
    plan = plan_of(schedule)
    return replace(plan, rule=_carried_back(plan.rule, start), once=False)


def nominal_times(plan: Plan, start: datetime, end: datetime) -> Iterator[datetime]:
    """The open nominal times from `start` on and before `end`."""
    return takewhile(lambda nominal: nominal < end, plan.fires(just_before(start)))


def fire(backfill: Backfill, plan: Plan, nominals: Sequence[datetime]) -> int:
    """Make an event and a tick of each nominal time; return how many events are new."""
    ticks = [_event(backfill, nominal, plan.due(nominal)) for nominal in nominals]
    names, ids = names_of(backfill.schedule), [tick.ce_id for tick in ticks]
    # Events under an earlier name of the schedule would not conflict.
    there = {time for time, *_ in _events(backfill, names, ids)}
    accept_own([tick for tick in ticks if tick.time not in there])
    nudge_dispatcher()
    events = _events(backfill, names, ids)
    BackfillTick.objects.bulk_create(
        BackfillTick(backfill=backfill, nominal=nominal, event_id=id, outcome=Outcome.OPEN if is_new else Outcome.THERE)
        for nominal, id, is_new in events
    )
    return sum(is_new for *_, is_new in events)


def _events(backfill: Backfill, names: list[str], ids: list[str]) -> list[tuple[datetime, UUID, bool]]:
    """The nominal time and the id of each, and whether this backfill has made it."""
    return [
        (time, id, is_own)
        for time, id, is_own in fetch(EVENTS, [str(backfill.pk), builtin_source("schedule"), names, ids])
    ]


def _carried_back(rule: Rule, start: datetime) -> Rule:
    if isinstance(rule, Interval) and rule.anchor and rule.anchor > start:
        steps = -((start - rule.anchor) // rule.every)
        return replace(rule, anchor=rule.anchor - steps * rule.every)
    return rule


def _event(backfill: Backfill, nominal: datetime, due: datetime) -> Incoming:
    schedule = backfill.schedule
    event = event_of(schedule.task_id, schedule.task.name, schedule.trigger_id, schedule.data, nominal, due)
    identity = f"backfill:{backfill.pk}:{nominal.astimezone(UTC).isoformat()}" if backfill.again else event.ce_id
    return replace(event, ce_id=identity, data={**event.data, "backfill": str(backfill.pk)})
