"""Fire what is due and settle what was edited, in batches; one that is refused is done schedule by schedule."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import structlog
from django.core.exceptions import ValidationError
from django.db import DataError, IntegrityError, transaction

from runs.db.sql import database_now, execute, fetch_as
from runs.failpoints import failpoint
from triggers.schedules.firing import second_beat
from triggers.schedules.firing.catch_up import TICKS, decide, log_missed, newest_due
from triggers.schedules.firing.claim import DUE, STALE, THIS, Claimed, claim_ids, load_claimed
from triggers.schedules.firing.owed_fires import Budget, Owed, Rest, as_many, leave_to_the_other, used_up
from triggers.schedules.firing.record import record_ticks
from triggers.schedules.firing.settle import settle_claimed
from triggers.schedules.own_tasks import is_foreign
from triggers.schedules.plans import is_done_elsewhere

log = structlog.get_logger(__name__)
BATCH = 200  # schedules of one transaction
REFUSED = (DataError, IntegrityError, ValidationError, RecursionError)  # the last by JSON nested too deeply
TOO_LONG = (
    "Working out what it owes takes too long. Simplify its active hours and"
    " exclusions, or give it a shorter catch_up_window, and save it: it fires again from then on."
)
LOOK = """
SELECT clock_timestamp() AS now,
       EXISTS (SELECT FROM triggers_schedule WHERE stale) AS has_stale,
       EXISTS (SELECT FROM triggers_schedule WHERE due_at IS NULL AND NOT stale AND rest = '') AS has_unarmed,
       EXISTS (SELECT FROM triggers_backfill WHERE ended_at IS NULL) AS has_backfills,
       (SELECT min(due_at) FROM triggers_schedule WHERE due_at IS NOT NULL AND NOT stale) AS next_due
"""
REFUSE = """
UPDATE triggers_schedule SET stale = false, spec = '', next_fire_at = NULL, due_at = NULL, rest = 'problem', problem = %s::text
WHERE id = %s::bigint
"""


@dataclass(frozen=True, kw_only=True)
class DueSchedules:
    """The work of Beat that is due, by the database's clock."""

    now: datetime
    has_stale: bool
    has_unarmed: bool
    has_backfills: bool
    next_due: datetime | None

    @property
    def is_due(self) -> bool:
        return self.next_due is not None and self.next_due <= self.now


def find_due(ask: Callable[[Callable[..., DueSchedules], str], list[DueSchedules]] = fetch_as) -> DueSchedules:
    """One cheap statement, the only one of an idle Beat."""
    [found] = ask(DueSchedules, LOOK)
    return found


def settle(now: datetime | None = None, limit: int = BATCH) -> int:
    """Account for what stale schedules owed before their edits, and arm them again. Return how many were stale."""
    at = now or database_now()
    return _batch(STALE, [], "schedule.id", limit, partial(settle_claimed, at))


def fire_due(now: datetime, limit: int = BATCH) -> int:
    """Fire one batch of schedules due at `now`; return how many."""
    fired = _batch(DUE, [now], "schedule.due_at, schedule.id", limit, partial(_fire, now))
    if fired:
        failpoint("after_tick_commit")
    return fired


def try_alone(id: int) -> None:
    """Settle and fire one schedule, in transactions of its own. Raises TookTooLong."""
    now = database_now()
    _batch(STALE + THIS, [id], "schedule.id", 1, partial(settle_claimed, now))
    _batch(DUE + THIS, [now, id], "schedule.id", 1, partial(_fire, now))


def give_up(id: int) -> None:
    """Stop a schedule that takes too long to work out, until it is edited. It still owes what it owed."""
    log.error("beat.schedule_took_too_long", id=id)
    execute(REFUSE, [TOO_LONG, id])


def _batch(
    which: str, parameters: list[int | datetime], order: str, limit: int, act: Callable[[Sequence[Claimed]], None]
) -> int:
    """Claim and act in one transaction; return how many were claimed. A refused batch is done schedule by schedule."""
    ids: list[int] = []
    try:
        with transaction.atomic():
            ids = claim_ids(which, parameters, order, limit)
            act(load_claimed(ids))
    except REFUSED:
        log.exception("beat.batch_refused")
        for id in ids:
            _alone(id, which, parameters, act)
    return len(ids)


def _alone(id: int, which: str, parameters: list[int | datetime], act: Callable[[Sequence[Claimed]], None]) -> None:
    try:
        with transaction.atomic():
            act(load_claimed(claim_ids(which + THIS, [*parameters, id], "schedule.id", 1)))
    except REFUSED as error:
        log.exception("beat.schedule_refused", id=id)
        execute(REFUSE, [f"{type(error).__name__}: {error}", id])


def _fire(now: datetime, schedules: Sequence[Claimed]) -> None:
    if schedules:
        share = max(1, TICKS // len(schedules))
        owed = as_many(schedules, lambda schedule, budget: _owed(schedule, now, share, budget))
        record_ticks(owed, now)
        log_missed(owed)
        failpoint("before_tick_commit")


def _owed(schedule: Claimed, now: datetime, share: int, budget: Budget) -> Owed:
    begun = schedule.accounted_until or schedule.edited_at
    owed = Owed(claimed=schedule, accounted=begun, spec=schedule.spec, anchor=schedule.anchor_at)
    if is_foreign(schedule.task, schedule.trigger_id):
        owed.leave(now)  # a Beat of an earlier version armed it
        return owed
    definition, first = schedule.definition, schedule.next_fire_at
    if schedule.ran_elsewhere:
        second_beat.note(schedule.name, schedule.ran_elsewhere)
    try:
        plan = definition.plan(owed.anchor)
        if schedule.ran_elsewhere and first and first <= schedule.ran_elsewhere:
            plan = leave_to_the_other(owed, plan)
            first = next(plan.fires(owed.accounted), None)
        is_done = is_done_elsewhere(plan, schedule.ran_elsewhere)
        if first and plan.due(first) <= now and not is_done:
            newest = first if plan.once else newest_due(plan, first, now)
            decide(owed, definition, plan, first, newest, now, share, budget)
        if is_done or (definition.one_off and first and first <= owed.accounted):
            owed.retire(Rest.DONE)
        elif used_up(owed):
            owed.retire(Rest.USED_UP)
        else:
            owed.arm(plan, owed.accounted)
    except Exception as error:
        owed.refuse(error)
    return owed
