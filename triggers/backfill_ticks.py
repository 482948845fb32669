"""The nominal times of a backfill become events, unless they have fired before."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import takewhile
from uuid import UUID

from runs.sql import fetch
from triggers.accept import Incoming, accept, builtin_source
from triggers.calendar import Interval, Rule, just_before, next_fires
from triggers.models import Backfill, BackfillTick, Schedule
from triggers.schedules import rule_of

EVENT_TYPE = "schedule.fired"
KNOWN = """
SELECT "time", id FROM triggers_event
WHERE source_id = %s::uuid AND ce_source = %s::text AND ce_id = ANY(%s::text[])
"""
Outcome = BackfillTick.Outcome


def in_utc(schedule: Schedule, at: datetime) -> datetime:
    """An instant; one without an offset is in the schedule's zone."""
    zone = schedule.task.crontab.timezone if schedule.task.crontab else UTC
    return (at if at.tzinfo else at.replace(tzinfo=zone)).astimezone(UTC)


def nominal_times(schedule: Schedule, start: datetime, end: datetime) -> Iterator[datetime]:
    """Its nominal times from `start` on and before `end`, by its rule as it is now. RuleError if that cannot be carried
    out."""
    task = schedule.task
    rule = _carried_back(rule_of(task, schedule.anchor_at or task.start_time or schedule.edited_at), start)
    fires = next_fires(rule, just_before(start), start=task.start_time, end=task.expires)
    return takewhile(lambda nominal: nominal < end, fires)


def fire(backfill: Backfill, nominals: Sequence[datetime]) -> int:
    """Make their events, and a tick of each; how many events there were not yet."""
    known = _known(backfill, nominals)
    new = [nominal for nominal in nominals if nominal not in known]
    ticks = [(nominal, event_id, Outcome.THERE) for nominal, event_id in known.items()]
    for nominal, event in zip(new, accept([_event(backfill, nominal) for nominal in new]), strict=True):
        ticks.append((nominal, event.event_id, Outcome.THERE if event.duplicate else Outcome.OPEN))
    BackfillTick.objects.bulk_create(
        BackfillTick(backfill=backfill, nominal=nominal, event_id=event_id, outcome=outcome)
        for nominal, event_id, outcome in sorted(ticks)
    )
    return len(new)


def _carried_back(rule: Rule, start: datetime) -> Rule:
    """An interval's grid goes on into the past of its anchor."""
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


def _event(backfill: Backfill, nominal: datetime) -> Incoming:
    schedule, nominal = backfill.schedule, nominal.astimezone(UTC)
    data = {
        "schedule": schedule.task.name,
        "nominal": nominal.isoformat(),
        "due": nominal.isoformat(),
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
