"""The nominal times of a backfill become events, unless they have fired before."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import takewhile
from uuid import UUID

from runs.sql import fetch
from triggers.accept import Incoming, accept, builtin_source
from triggers.calendar import Interval, Rule, just_before
from triggers.models import Backfill, BackfillTick, Schedule
from triggers.plan import Plan
from triggers.state import State
from triggers.ticks import EVENT_TYPE

KNOWN = """
SELECT "time", id FROM triggers_event
WHERE source_id = %s::uuid AND ce_source = %s::text AND ce_id = ANY(%s::text[])
"""
Outcome = BackfillTick.Outcome


def in_utc(schedule: Schedule, at: datetime) -> datetime:
    """An instant; one without an offset is in the schedule's zone."""
    return (at if at.tzinfo else at.replace(tzinfo=State.of(schedule).zone)).astimezone(UTC)


def plan_of(schedule: Schedule, start: datetime) -> Plan:
    """When it fires, as its rows are now, from an instant on; an interval's grid goes on into the past of its anchor.
    RuleError if it cannot be carried out."""
    state = State.of(schedule)
    plan = state.plan(schedule.anchor_at or state.start or schedule.edited_at)
    return replace(plan, rule=_carried_back(plan.rule, start), once=False)


def nominal_times(plan: Plan, start: datetime, end: datetime) -> Iterator[datetime]:
    """Those that are open, from `start` on and before `end`."""
    return takewhile(lambda nominal: nominal < end, plan.fires(just_before(start)))


def fire(backfill: Backfill, plan: Plan, nominals: Sequence[datetime]) -> int:
    """Make their events, and a tick of each; how many events there were not yet."""
    known = _known(backfill, nominals)
    new = [nominal for nominal in nominals if nominal not in known]
    ticks = [(nominal, event_id, Outcome.THERE) for nominal, event_id in known.items()]
    accepted = accept([_event(backfill, nominal, plan.due(nominal)) for nominal in new])
    for nominal, event in zip(new, accepted, strict=True):
        ticks.append((nominal, event.event_id, Outcome.THERE if event.duplicate else Outcome.OPEN))
    BackfillTick.objects.bulk_create(
        BackfillTick(backfill=backfill, nominal=nominal, event_id=event_id, outcome=outcome)
        for nominal, event_id, outcome in sorted(ticks)
    )
    return len(new)


def _carried_back(rule: Rule, start: datetime) -> Rule:
    if isinstance(rule, Interval) and rule.anchor and rule.anchor > start:
        steps = -((start - rule.anchor) // rule.every)
        return replace(rule, anchor=rule.anchor - steps * rule.every)
    return rule


def _known(backfill: Backfill, nominals: Sequence[datetime]) -> dict[datetime, UUID]:
    ids = [_identity(backfill, nominal) for nominal in nominals]
    return dict(fetch(KNOWN, [builtin_source("schedule"), backfill.schedule.task.name, ids]))


def _identity(backfill: Backfill, nominal: datetime) -> str:
    prefix = f"backfill:{backfill.pk}" if backfill.again else backfill.schedule.task_id
    return f"{prefix}:{nominal.astimezone(UTC).isoformat()}"


def _event(backfill: Backfill, nominal: datetime, due: datetime) -> Incoming:
    schedule, nominal = backfill.schedule, nominal.astimezone(UTC)
    data = {
        "schedule": schedule.task.name,
        "nominal": nominal.isoformat(),
        "due": due.astimezone(UTC).isoformat(),
        "backfill": str(backfill.pk),
    }
    return Incoming(
        source_id=builtin_source("schedule"),
        ce_source=schedule.task.name,
        ce_id=_identity(backfill, nominal),
        type=EVENT_TYPE,
        time=nominal,
        data=data if schedule.data is None else {**data, "data": schedule.data},
        target_id=schedule.trigger_id,
    )
