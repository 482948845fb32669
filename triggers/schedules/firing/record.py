"""Record ticks: events, messages of ordinary tasks, skips, and where each schedule stands."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import structlog
from django_celery_beat.models import PeriodicTask

from runs.db.nudge import nudge_dispatcher
from runs.db.sql import execute
from runs.models import OutboxMessage
from triggers.accept import Incoming, accept_own, builtin_source
from triggers.exceptions import RuleError
from triggers.models import Skip
from triggers.schedules.accounting import Stretch
from triggers.schedules.firing.owed_fires import Owed, refused_stretch
from triggers.schedules.periodic_tasks import message_of

log = structlog.get_logger(__name__)
EVENT_TYPE = "schedule.fired"
ADVANCE = """
UPDATE triggers_schedule schedule SET next_fire_at = owed.next, due_at = owed.due,
       -- Retiring is an edit of its task: nothing before that is owed either.
       accounted_until = CASE WHEN owed.retires THEN greatest(owed.accounted, clock_timestamp()) ELSE owed.accounted END,
       last_fire_at = coalesce(owed.last, schedule.last_fire_at), fires = schedule.fires + owed.count,
       fired_at = CASE WHEN owed.count > 0 THEN owed.now ELSE schedule.fired_at END,
       spec = owed.spec, anchor_at = owed.anchor, rest = owed.rest, problem = owed.problem, stale = owed.unsettled
FROM unnest(%s::bigint[], %s::timestamptz[], %s::timestamptz[], %s::timestamptz[], %s::timestamptz[], %s::int[],
            %s::timestamptz[], %s::text[], %s::timestamptz[], %s::text[], %s::text[], %s::boolean[], %s::boolean[])
     AS owed (id, next, due, accounted, last, count, now, spec, anchor, rest, problem, retires, unsettled)
WHERE schedule.id = owed.id
"""
# Only these columns: PeriodicTask.save() has side effects, and none of this is an edit. A schedule that fired for the
# last time is switched off, so that no other scheduler fires it again.
COUNT = """
UPDATE django_celery_beat_periodictask task
SET last_run_at = CASE WHEN owed.count > 0 THEN %s::timestamptz ELSE task.last_run_at END,
    total_run_count = task.total_run_count + owed.count, enabled = task.enabled AND NOT owed.retires
FROM unnest(%s::int[], %s::int[], %s::boolean[]) AS owed (id, count, retires)
WHERE task.id = owed.id AND (owed.count > 0 OR owed.retires)
"""


def record_ticks(owed: Sequence[Owed], now: datetime) -> None:
    accept_own([_event(one, nominal, due) for one in owed for nominal, due in one.fires if one.claimed.trigger_id])
    OutboxMessage.objects.bulk_create(_messages(owed))
    record_skips((one.claimed.id, skip) for one in owed for skip in one.skips)
    counts = [(one.claimed.task_id, one.count, one.retires) for one in owed]
    execute(COUNT, [now, *(list(column) for column in zip(*counts, strict=True))])
    # After the count: one that retires would otherwise be left stale.
    columns = [
        (one.claimed.id, one.next, one.due, one.accounted, one.last, one.count, now, one.spec, one.anchor, str(one.rest),
         one.problem, one.retires, one.unsettled)
        for one in owed
    ]  # fmt: skip
    execute(ADVANCE, [list(column) for column in zip(*columns, strict=True)])
    if any(one.count for one in owed):
        nudge_dispatcher()


def record_skips(skips: Iterable[tuple[int, Stretch]]) -> None:
    """Each is of the schedule with this id."""
    rows = (
        Skip(schedule_id=id, reason=one.reason, first=one.first, last=one.last, count=one.count, detail=one.detail)
        for id, one in skips
    )
    Skip.objects.bulk_create(rows, ignore_conflicts=True)


def _event(owed: Owed, nominal: datetime, due: datetime) -> Incoming:
    schedule = owed.claimed
    return event_of(schedule.task_id, schedule.name, schedule.trigger_id, schedule.data, nominal, due)


def event_of(task_id: int, name: str, trigger_id: UUID | None, own: Any, nominal: datetime, due: datetime) -> Incoming:
    """The event of one nominal time of a schedule; `own` is the data of the schedule itself."""
    nominal = nominal.astimezone(UTC)
    data = {"schedule": name, "nominal": nominal.isoformat(), "due": due.astimezone(UTC).isoformat()}
    return Incoming(
        source_id=builtin_source("schedule"),
        ce_source=name,
        ce_id=f"{task_id}:{nominal.isoformat()}",
        type=EVENT_TYPE,
        time=nominal,
        data=data if own is None else {**data, "data": own},
        target_id=trigger_id,
    )


def _messages(owed: Sequence[Owed]) -> list[OutboxMessage]:
    """The messages of ordinary tasks. A task whose columns make no message has a problem until they do."""
    ordinary = [one for one in owed if one.fires and one.claimed.trigger_id is None]
    if not ordinary:
        return []
    tasks: Mapping[int, PeriodicTask] = PeriodicTask.objects.in_bulk([one.claimed.task_id for one in ordinary])
    messages: list[OutboxMessage] = []
    for one in ordinary:
        try:
            messages += [message_of(tasks[one.claimed.task_id], nominal) for nominal, _ in one.fires]
        except RuleError as error:
            log.error("beat.task_refused", schedule=one.claimed.name, reason=str(error))
            one.skips += [refused_stretch(nominal, nominal, error, count=1) for nominal, _ in one.fires]
            one.fires, one.problem = [], str(error)
    return messages
