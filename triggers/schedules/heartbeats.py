"""Heartbeats: intervals whose agent sets the pace. `run.next_check(…)` sets the time to the next wake, counted from the
end of the run; the schedule keeps it within `pace_min` and `pace_max`, and in its active hours.

1. The grid moves: the interval goes on from the requested time. The earlier definition is kept as a Revision, and the
  times of the old grid that are left out are a Skip.
2. Beat goes first. A schedule that is stale, due or locked is left alone and looked at again LATER: the pace that its
   agent set is never lost, and no fire is.
3. The later word counts: what was put off is dropped where the schedule has fired, was edited or was
   paced since.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import repeat
from typing import Any
from uuid import UUID

import structlog
from django.db.models import Q

from agents.exceptions import Permanent
from runs.attempt.effects import PACE
from runs.db.sql import database_now, execute, fetch
from runs.models import OutboxMessage
from runs.models.audit import record, record_about
from triggers.dispatch.admission import loop_rate
from triggers.exceptions import RuleError
from triggers.models import Revision, Schedule, Skip
from triggers.schedules.accounting import account, together
from triggers.schedules.clock import EVER, just_before
from triggers.schedules.definition import ROWS, STATE
from triggers.schedules.firing.claim import THIS, claim_ids
from triggers.schedules.firing.record import record_skips
from triggers.schedules.plan import CLOSED_IN_A_ROW, Plan
from triggers.schedules.plans import plan_of
from triggers.schedules.rules.interval import Interval

log = structlog.get_logger(__name__)

LATER = timedelta(seconds=1)
SLOWEST = timedelta(days=3660)
STEPS = 1000  # stretches of the past grid that are accounted for one by one
QUIET = "NOT schedule.stale AND (schedule.due_at IS NULL OR schedule.due_at > %s::timestamptz)"
REVISE = f"""
INSERT INTO triggers_revision (schedule_id, until, by, state)
SELECT schedule.id, %s::timestamptz, %s::text, {STATE} FROM {ROWS} WHERE schedule.id = %s::bigint
"""  # noqa: S608  (our own parts)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The request of a run: its next heartbeat comes `after` this time, counted from `since`, when the run ended."""

    trigger: UUID
    run: str
    after: timedelta
    reason: str
    since: datetime
    is_put_off: bool

    @classmethod
    def load(cls, payload: dict[str, Any], now: datetime) -> "Asked":
        since = payload.get("since")
        return cls(
            trigger=UUID(payload["trigger"]),
            run=payload["run"],
            after=timedelta(seconds=payload["after"]),
            reason=payload["reason"],
            since=datetime.fromisoformat(since) if since else now,
            is_put_off=bool(since),
        )

    def dump(self) -> dict[str, Any]:
        return {
            "trigger": str(self.trigger),
            "run": self.run,
            "after": self.after.total_seconds(),
            "reason": self.reason,
            "since": self.since.isoformat(),
        }

    @property
    def words(self) -> str:
        return f"run {self.run}" + (f": {self.reason}" if self.reason else "")


def require_heartbeat(trigger_id: UUID, slug: str) -> None:
    """Permanent: this trigger has no heartbeat, so a run of it has no pace to set."""
    if not _heartbeats(trigger_id).exists():
        raise Permanent(
            f"trigger {slug!r} has no heartbeat whose next check a run could set: declare one with on.heartbeat(…),"
            " or wake it once with run.wake_in(…)"
        )


def set_pace(payloads: Sequence[dict[str, Any]], now: datetime | None = None) -> None:
    """Move heartbeats to the times that their agents requested; a handler of the outbox."""
    now = now or database_now()
    asked = sorted((Asked.load(payload, now) for payload in payloads), key=lambda one: one.since)
    for one in {one.trigger: one for one in asked}.values():
        ids = list(_heartbeats(one.trigger).order_by("id").values_list("id", flat=True))
        if not ids:
            _drop(one, "its trigger has no heartbeat any more")
        busy = [id for id in ids if not _set(id, one, now)]
        if busy:
            OutboxMessage.objects.create(topic=PACE, key=str(one.trigger), payload=one.dump(), available_at=now + LATER)


def _heartbeats(trigger_id: UUID) -> Any:
    return Schedule.objects.filter(trigger_id=trigger_id, kind=Schedule.Kind.HEARTBEAT)


def _set(id: int, asked: Asked, now: datetime) -> bool:
    """False: it is locked, or Beat has to settle or fire it first."""
    if not claim_ids(QUIET + THIS, [now, id], "schedule.id", 1):
        return False
    # Read after the lock, in a new statement: an edit that came just before it is seen.
    schedule = Schedule.objects.select_related("task").get(pk=id)
    if _is_overtaken(schedule, asked):
        log.info("heartbeat.overtaken", schedule=schedule.task.name, run=asked.run)
        return True
    try:
        _move(schedule, asked, now)
    except RuleError as error:
        _drop(asked, str(error))
    return True


def _is_overtaken(schedule: Schedule, asked: Asked) -> bool:
    # What was put off may have been carried out already, for another heartbeat of its trigger.
    since = just_before(asked.since) if asked.is_put_off else asked.since
    has_fired = schedule.fired_at is not None and schedule.fired_at > since
    return has_fired or Revision.objects.filter(schedule=schedule.pk, until__gt=since).exists()


def _move(schedule: Schedule, asked: Asked, now: datetime) -> None:
    """RuleError: there is nothing to move, or nowhere to move it to."""
    if schedule.next_fire_at is None or schedule.due_at is None:
        raise RuleError(f"the heartbeat has no next time: {schedule.get_rest_display()}")
    old = plan_of(schedule)
    if not isinstance(old.rule, Interval):
        raise RuleError("the heartbeat is no interval")
    given = _clamped(schedule, asked.after)
    wanted = _open_from(old, max(asked.since + given, now + timedelta(microseconds=1)))
    new = replace(old, rule=replace(old.rule, anchor=wanted))
    due = new.due(wanted)
    begun = schedule.accounted_until or schedule.edited_at

    execute(REVISE, [now, f"run:{asked.run}", schedule.pk])
    _account(schedule, old, asked, begun, now, wanted)
    moved = Schedule.objects.filter(
        Q(accounted_until=schedule.accounted_until) if schedule.accounted_until else Q(accounted_until=None),
        pk=schedule.pk,
        stale=False,
        anchor_at=schedule.anchor_at,
        next_fire_at=schedule.next_fire_at,
    ).update(anchor_at=wanted, next_fire_at=wanted, due_at=due, accounted_until=max(begun, now))
    if not moved:
        raise RuntimeError(f"heartbeat {schedule.task.name} changed under its lock")
    said = {"asked": asked.after.total_seconds(), "given": given.total_seconds(), "reason": asked.reason}
    record(f"run:{asked.run}", "pace", schedule, next=wanted.isoformat(), **said)
    log.info("heartbeat.paced", schedule=schedule.task.name, run=asked.run, next=wanted.isoformat(), **said)
    if due < schedule.due_at:
        fetch("SELECT pg_notify('wakeful_beat', '')")


def _clamped(schedule: Schedule, after: timedelta) -> timedelta:
    fastest = schedule.pace_min or loop_rate().spacing
    return min(max(after, fastest), schedule.pace_max or SLOWEST)


def _open_from(plan: Plan, instant: datetime) -> datetime:
    """The first instant from this one on at which the heartbeat may come."""
    instant = max(instant, plan.start or instant)
    for _ in range(CLOSED_IN_A_ROW):
        if plan.end and instant >= plan.end:
            raise RuleError("the heartbeat's end comes first")
        closure = plan.closed(instant)
        if closure is None:
            return instant
        if closure.until == EVER:
            break
        instant = closure.until
    raise RuleError("the heartbeat is never active again")


def _account(schedule: Schedule, old: Plan, asked: Asked, begun: datetime, now: datetime, wanted: datetime) -> None:
    """Skip the old interval's fires before `wanted`, with reason PACED."""
    steps = repeat(True, STEPS)
    past, reached = account(old, begun, now, [], [(EVER, Skip.Reason.PACED)], partial(next, steps, False))
    # The grid moves now: where the past is long, the rest of it has one reason.
    ahead = together(old, max(begun, reached), just_before(wanted), Skip.Reason.PACED)
    told = (replace(one, detail=asked.words) if one.reason == Skip.Reason.PACED else one for one in (*past, *ahead))
    record_skips((schedule.pk, one) for one in told)


def _drop(asked: Asked, reason: str) -> None:
    log.warning("heartbeat.pace_dropped", trigger=str(asked.trigger), run=asked.run, reason=reason)
    record_about("dispatcher", "drop", "trigger", str(asked.trigger), run=asked.run, pace=asked.reason, reason=reason)
