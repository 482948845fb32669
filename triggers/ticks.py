"""What is due becomes events. Any number of Beats may do this at once: due rows are claimed, and a tick is recorded,
its schedule advanced and its task counted in one transaction, so every nominal time is accounted for exactly once.

1. An edit of a schedule's row marks it stale, in the editor's transaction. A stale schedule is computed anew before it
   may fire. An edit that changes nothing (the same rule written again, another name) moves nothing.
2. A schedule row and its task row are locked together or not at all: an editor locks the task first and then, through
   the table's trigger, the schedule. What is locked is skipped, never waited for, so there is no deadlock.
3. The rules are read after the locks, in a new statement: an edit that came just before the claim is seen.
4. A nominal time is *on time* until it is GRACE old, or, once a later one is due as well, LAG old: that much lateness
   is Beat's own (a busy machine, a restart), and no policy drops such a tick. What is older was *missed*: `all` fires
   each of them, `latest` the newest unless one on time fires anyway, `skip` none.
5. Only the database's clock decides what is due. The instant is an argument so that tests can choose it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice, takewhile
from typing import cast

import structlog
from django.core.exceptions import ValidationError
from django.db import DataError, IntegrityError, connection, transaction

from runs.failpoints import failpoint
from runs.models import OutboxMessage
from runs.nudge import nudge_dispatcher
from triggers.accept import Incoming, accept, builtin_source
from triggers.calendar import Clocked, Interval, Rule, RuleError, just_before, latest_fire, next_fires
from triggers.models import Schedule
from triggers.periodic import message_of
from triggers.schedules import rule_of

log = structlog.get_logger(__name__)

BATCH = 200  # schedules of one transaction
TICKS = 500  # of one transaction, shared among its schedules: a long outage is worked off batch by batch
GRACE = timedelta(seconds=30)
LAG = timedelta(seconds=2)
EVENT_TYPE = "schedule.fired"
REFUSED = (DataError, IntegrityError, ValidationError)

LOOK = """
SELECT clock_timestamp(),
       EXISTS (SELECT 1 FROM triggers_schedule WHERE stale),
       (SELECT min(due_at) FROM triggers_schedule WHERE due_at IS NOT NULL AND NOT stale)
"""
CLAIM = """
SELECT schedule.id FROM triggers_schedule schedule JOIN django_celery_beat_periodictask task ON task.id = schedule.task_id
WHERE {which} ORDER BY {order} LIMIT %s::int FOR UPDATE SKIP LOCKED
"""
STALE = "schedule.stale"
DUE = "schedule.due_at <= %s::timestamptz AND NOT schedule.stale"
THIS = " AND schedule.id = %s::bigint"
ADVANCE = """
UPDATE triggers_schedule schedule SET next_fire_at = owed.next, due_at = owed.next, last_fire_at = coalesce(owed.last, schedule.last_fire_at),
       problem = owed.problem, stale = false
FROM unnest(%s::bigint[], %s::timestamptz[], %s::timestamptz[], %s::text[]) AS owed (id, next, last, problem)
WHERE schedule.id = owed.id
"""
# Only these columns: PeriodicTask.save() has side effects, and none of this is an edit. A one-shot retires with its fire.
COUNT = """
UPDATE django_celery_beat_periodictask task
SET last_run_at = CASE WHEN owed.count > 0 THEN %s::timestamptz ELSE task.last_run_at END,
    total_run_count = task.total_run_count + owed.count, enabled = task.enabled AND NOT task.one_off
FROM unnest(%s::int[], %s::int[]) AS owed (id, count) WHERE task.id = owed.id
"""


@dataclass(frozen=True, kw_only=True)
class Look:
    """What there is to do, by the database's clock."""

    now: datetime
    has_stale: bool
    next_due: datetime | None

    @property
    def is_due(self) -> bool:
        return self.next_due is not None and self.next_due <= self.now


@dataclass(frozen=True, kw_only=True)
class Owed:
    """What a schedule owes at an instant."""

    schedule: Schedule
    events: Sequence[Incoming] = ()
    messages: Sequence[OutboxMessage] = ()
    next: datetime | None = None
    last: datetime | None = None  # the last nominal time accounted for, fired or not
    problem: str = ""


def look() -> Look:
    """One cheap statement; all an idle Beat asks."""
    with connection.cursor() as cursor:
        cursor.execute(LOOK)
        now, has_stale, next_due = cursor.fetchone()
    return Look(now=now, has_stale=has_stale, next_due=next_due)


def settle(limit: int = BATCH) -> int:
    """Compute stale schedules anew; how many were."""
    return _batch(STALE, [], "schedule.id", limit, _settle)


def fire_due(now: datetime, limit: int = BATCH) -> int:
    """Fire what is due at `now`, one batch; how many schedules were."""
    fired = _batch(DUE, [now], "schedule.due_at, schedule.id", limit, partial(_fire, now))
    if fired:
        failpoint("after_tick_commit")
    return fired


def _batch(
    which: str, parameters: list[int | datetime], order: str, limit: int, act: Callable[[Sequence[Schedule]], None]
) -> int:
    """Claim and act in one transaction; how many were claimed. A batch that is refused is done schedule by schedule."""
    ids: list[int] = []
    try:
        with transaction.atomic():
            ids = _claim(which, parameters, order, limit)
            act(_load(ids))
    except REFUSED:
        log.exception("beat.batch_refused")
        for id in ids:
            _alone(id, which, parameters, act)
    return len(ids)


def _alone(id: int, which: str, parameters: list[int | datetime], act: Callable[[Sequence[Schedule]], None]) -> None:
    try:
        with transaction.atomic():
            act(_load(_claim(which + THIS, [*parameters, id], "schedule.id", 1)))
    except REFUSED as error:
        log.exception("beat.schedule_refused", id=id)
        problem = f"{type(error).__name__}: {error}"
        Schedule.objects.filter(id=id).update(stale=False, spec="", next_fire_at=None, due_at=None, problem=problem)


def _claim(which: str, parameters: list[int | datetime], order: str, limit: int) -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(CLAIM.format(which=which, order=order), [*parameters, limit])
        return [id for (id,) in cursor.fetchall()]


def _load(ids: Sequence[int]) -> list[Schedule]:
    if not ids:
        return []
    related = ("task__crontab", "task__interval", "task__clocked", "task__solar")
    return list(Schedule.objects.filter(id__in=ids).select_related(*related).order_by("id"))


# Computing anew


def _settle(schedules: Sequence[Schedule]) -> None:
    for schedule in schedules:
        _settle_one(schedule)
        schedule.due_at = schedule.next_fire_at
        schedule.save(update_fields=["stale", "problem", "spec", "anchor_at", "next_fire_at", "due_at"])
    failpoint("before_settle_commit")


def _settle_one(schedule: Schedule) -> None:
    schedule.stale, schedule.problem = False, ""
    if not schedule.task.enabled:
        schedule.spec, schedule.next_fire_at = "", None
    else:
        try:
            _compute(schedule)
        except RuleError as error:
            log.error("beat.schedule_refused", schedule=schedule.task.name, reason=str(error))
            schedule.spec, schedule.next_fire_at, schedule.problem = "", None, str(error)


def _compute(schedule: Schedule) -> None:
    task = schedule.task
    rule = rule_of(task)
    spec = f"{rule}, from {task.start_time.isoformat()}" if task.start_time else str(rule)
    is_edited = spec != schedule.spec
    if isinstance(rule, Interval):
        if is_edited or schedule.anchor_at is None:
            schedule.anchor_at = task.start_time or schedule.edited_at
        rule = replace(rule, anchor=schedule.anchor_at)
    schedule.spec = spec
    after = _accounted_until(schedule, rule, is_edited)
    schedule.next_fire_at = next(next_fires(rule, after, start=task.start_time, end=task.expires), None)


def _accounted_until(schedule: Schedule, rule: Rule, is_edited: bool) -> datetime:
    """The instant after which nominal times count: none before it fires any more, none after it may be lost."""
    if isinstance(rule, Clocked):
        # However late its row came, it fires, once.
        return schedule.last_fire_at or just_before(rule.at)
    after = schedule.edited_at
    if schedule.next_fire_at:
        # What was due before the edit and has not fired yet must not be swallowed by it.
        pending = just_before(schedule.next_fire_at)
        after = min(after, pending) if is_edited else pending
    return max(after, schedule.last_fire_at or after)


# Firing


def _fire(now: datetime, schedules: Sequence[Schedule]) -> None:
    if schedules:
        share = max(1, TICKS // len(schedules))
        _record([_owed(schedule, now, share) for schedule in schedules], now)
        failpoint("before_tick_commit")


def _owed(schedule: Schedule, now: datetime, share: int) -> Owed:
    task = schedule.task
    try:
        rule = rule_of(task, schedule.anchor_at)
    except RuleError as error:
        log.error("beat.schedule_refused", schedule=task.name, reason=str(error))
        return Owed(schedule=schedule, problem=str(error))

    fires, last = _fires(schedule, rule, now, share)
    following = None if task.one_off else next(next_fires(rule, last, end=task.expires), None)
    if schedule.trigger_id:
        events = [_event(schedule, nominal) for nominal in fires]
        return Owed(schedule=schedule, events=events, next=following, last=last)
    try:
        messages = [message_of(task, nominal) for nominal in fires]
    except RuleError as error:
        log.error("beat.task_refused", schedule=task.name, reason=str(error))
        return Owed(schedule=schedule, next=following, last=last, problem=str(error))
    return Owed(schedule=schedule, messages=messages, next=following, last=last)


def _fires(schedule: Schedule, rule: Rule, now: datetime, share: int) -> tuple[list[datetime], datetime]:
    """The nominal times that fire at `now` by the catch-up policy, at most `share` of those it must all catch up, and
    the last one thereby accounted for."""
    first, end = cast(datetime, schedule.next_fire_at), schedule.task.expires
    if schedule.task.one_off:
        newest = first
    elif schedule.catch_up == Schedule.CatchUp.ALL:
        later = takewhile(lambda fire: fire <= now, next_fires(rule, first, end=end))
        fires = [first, *islice(later, share - 1)]
        return fires, fires[-1]
    else:
        newest = latest_fire(rule, first, now, end=end)

    fires = _on_time(rule, first, newest, now)
    if not fires and schedule.catch_up != Schedule.CatchUp.SKIP:
        fires = [newest]
    if first not in fires:
        _log_missed(schedule, first, fires, now)
    return fires, newest


def _on_time(rule: Rule, first: datetime, newest: datetime, now: datetime) -> list[datetime]:
    recent = next_fires(rule, max(just_before(first), now - LAG))
    fires = list(takewhile(lambda fire: fire <= newest, recent))
    return fires or [newest] * (now - newest <= GRACE)


def _event(schedule: Schedule, nominal: datetime) -> Incoming:
    nominal = nominal.astimezone(UTC)
    return Incoming(
        source_id=builtin_source("schedule"),
        ce_source=schedule.task.name,
        ce_id=f"{schedule.task_id}:{nominal.isoformat()}",
        type=EVENT_TYPE,
        time=nominal,
        data={"schedule": schedule.task.name, "nominal": nominal.isoformat()},
        target_id=schedule.trigger_id,
    )


def _log_missed(schedule: Schedule, first: datetime, fires: Sequence[datetime], now: datetime) -> None:
    log.warning(
        "beat.ticks_missed",
        schedule=schedule.task.name,
        policy=schedule.catch_up,
        missed_from=first.isoformat(),
        late=str(now - first),
        fires=[fire.isoformat() for fire in fires],
    )


def _record(owed: Sequence[Owed], now: datetime) -> None:
    accept([event for each in owed for event in each.events])
    OutboxMessage.objects.bulk_create(message for each in owed for message in each.messages)
    with connection.cursor() as cursor:
        counts = [len(each.events) + len(each.messages) for each in owed]
        cursor.execute(COUNT, [now, [each.schedule.task_id for each in owed], counts])
        # After the count: a one-shot that retires would otherwise be left stale.
        columns = [(each.schedule.pk, each.next, each.last, each.problem) for each in owed]
        cursor.execute(ADVANCE, [list(column) for column in zip(*columns, strict=True)])
    nudge_dispatcher()
