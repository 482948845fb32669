"""Settle a stale schedule: account for what it owed before its edits, one definition after the other, then arm it."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

import structlog

from runs.db.sql import fetch
from runs.failpoints import failpoint
from triggers.exceptions import RuleError
from triggers.schedules.accounting import account, together
from triggers.schedules.clock import EVER, just_before
from triggers.schedules.definition import Definition
from triggers.schedules.firing.catch_up import TICKS, decide
from triggers.schedules.firing.claim import Claimed
from triggers.schedules.firing.owed_fires import (
    Budget,
    Owed,
    Reason,
    Rest,
    as_many,
    leave_to_the_other,
    refused_stretch,
    used_up,
)
from triggers.schedules.firing.record import record_ticks
from triggers.schedules.own_tasks import is_foreign
from triggers.schedules.plans import Grid, is_done_elsewhere
from triggers.schedules.rules.once import Clocked

log = structlog.get_logger(__name__)
PAST = """
SELECT revision.schedule_id, revision.state, revision.until FROM triggers_revision revision
JOIN triggers_schedule schedule ON schedule.id = revision.schedule_id
WHERE revision.schedule_id = ANY(%s::bigint[]) AND revision.until > coalesce(schedule.accounted_until, schedule.created_at)
ORDER BY revision.until, revision.id
"""


def settle_claimed(now: datetime, schedules: Sequence[Claimed]) -> None:
    if schedules:
        past: dict[int, list[tuple[Definition, datetime]]] = {}
        for id, definition, until in fetch(PAST, [[schedule.id for schedule in schedules]]):
            past.setdefault(id, []).append((Definition(id, json.loads(definition)), until))
        with_past = [replace(one, past=past.get(one.id, ())) for one in schedules]
        record_ticks(as_many(with_past, lambda one, budget: _settled(one, now, budget)), now)
    failpoint("before_settle_commit")


def _settled(schedule: Claimed, now: datetime, budget: Budget) -> Owed:
    begun = schedule.accounted_until or (schedule.created_at if schedule.past else schedule.edited_at)
    owed = Owed(claimed=schedule, accounted=begun, spec=schedule.spec, anchor=schedule.anchor_at)
    if is_foreign(schedule.task, schedule.trigger_id):
        owed.leave(now)
        return owed
    if schedule.rest == Rest.FOREIGN:
        schedule = owed.claimed = replace(schedule, past=())
        owed.accounted = now  # until now it was another Beat's
    was_off = False
    for definition, until in schedule.past:
        if until > owed.accounted:
            _account_for_past(owed, definition, until, now, was_off, budget)
        was_off = not definition.enabled
        # Not where the next definition has to know more than what is written down.
        owed.unsettled |= not (was_off or owed.is_done) and budget.is_spent
        if owed.unsettled:
            return owed
    if not schedule.definition.enabled:
        return _switched_off(owed)
    try:
        _arm(owed, was_off)
    except Exception as error:
        owed.spec = ""
        owed.refuse(error)
    return owed


def _account_for_past(
    owed: Owed, definition: Definition, until: datetime, now: datetime, was_off: bool, budget: Budget
) -> None:
    before = owed.count
    try:
        owed.is_done &= not _follow(owed, definition, owed.accounted, was_off)
        plan = leave_to_the_other(owed, definition.plan(owed.anchor))
        if not definition.enabled:
            owed.skips += together(plan, owed.accounted, until, Reason.PAUSED)
        elif owed.is_done or used_up(owed):
            pass
        elif (first := next(plan.fires(owed.accounted), None)) and first <= until:
            newest = first if plan.once else plan.newest(first, until)
            decide(owed, definition, plan, first, newest, now, TICKS, budget)
            owed.unsettled = owed.accounted < newest and not used_up(owed)
        owed.is_done |= plan.once and owed.count > before
        if definition.enabled and not (owed.is_done or owed.unsettled or used_up(owed)):
            skips, owed.accounted = account(plan, owed.accounted, until, [], [(EVER, Reason.MISSED)], budget.go_on)
            owed.skips += skips
            owed.unsettled = owed.accounted < until
    except Exception as error:
        log.error("beat.past_refused", schedule=owed.claimed.name, reason=repr(error))
        if definition.enabled:
            owed.skips.append(refused_stretch(owed.accounted, until, error))
    if not owed.unsettled:
        owed.accounted = max(owed.accounted, until)


def _follow(owed: Owed, definition: Definition, since: datetime, was_off: bool) -> bool:
    """Anchor the rule of the next definition; is it another rule than before?"""
    before = Grid(owed.spec, owed.anchor)
    grid = before.follow(definition, since, was_off=was_off, elsewhere=owed.claimed.ran_elsewhere)
    owed.spec, owed.anchor = grid.spec, grid.anchor
    return grid.spec != before.spec


def _arm(owed: Owed, was_off: bool) -> None:
    schedule, definition = owed.claimed, owed.claimed.definition
    is_new = _follow(owed, definition, owed.accounted, was_off)
    owed.is_done &= not is_new
    plan = leave_to_the_other(owed, definition.plan(owed.anchor))
    begun = owed.accounted
    if isinstance(plan.rule, Clocked) and is_new:
        # However late its row came, it fires, once.
        begun = min(begun, just_before(plan.rule.at))
    if (owed.is_done and definition.one_off) or is_done_elsewhere(plan, schedule.ran_elsewhere):
        owed.retire(Rest.DONE)
    elif used_up(owed):
        owed.retire(Rest.USED_UP)
    else:
        owed.arm(plan, begun)
        if owed.rest and definition.one_off and schedule.last_fire_at:
            owed.rest = Rest.DONE


def _switched_off(owed: Owed) -> Owed:
    schedule = owed.claimed
    # A finished schedule stays finished until it gets another rule; fires under an earlier rule do not count.
    if schedule.definition.one_off and (owed.is_done or (schedule.rest == Rest.DONE and not _has_other_rule(owed))):
        owed.rest = Rest.DONE
    else:
        owed.rest = Rest.USED_UP if used_up(owed) else Rest.OFF
    return owed


def _has_other_rule(owed: Owed) -> bool:
    try:
        return owed.claimed.definition.spec != owed.spec
    except RuleError:
        return True
