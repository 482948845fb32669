"""Settle a stale schedule: account for what it owed before its edits, then arm it."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

import structlog

from runs.db.sql import fetch
from runs.failpoints import failpoint
from triggers.schedules.clock import just_before
from triggers.schedules.definition import State
from triggers.schedules.firing.claim import Claimed
from triggers.schedules.firing.decide import TICKS, decide
from triggers.schedules.firing.owed import (
    Budget,
    Owed,
    Reason,
    Rest,
    as_many,
    has_other_rule,
    is_done_elsewhere,
    leave_to_the_other,
    refused_stretch,
    used_up,
)
from triggers.schedules.firing.record import record_ticks
from triggers.schedules.plan import EVER
from triggers.schedules.rules.interval import Interval
from triggers.schedules.rules.once import Clocked

log = structlog.get_logger(__name__)


PAST = """
SELECT revision.schedule_id, revision.state, revision.until FROM triggers_revision revision
JOIN triggers_schedule schedule ON schedule.id = revision.schedule_id
WHERE revision.schedule_id = ANY(%s::bigint[]) AND revision.until > coalesce(schedule.accounted_until, schedule.created_at)
ORDER BY revision.until, revision.id
"""


# Settling: past states first, each up to the edit that ended it


def settle_claimed(now: datetime, schedules: Sequence[Claimed]) -> None:
    if schedules:
        past: dict[int, list[tuple[State, datetime]]] = {}
        for id, state, until in fetch(PAST, [[schedule.id for schedule in schedules]]):
            past.setdefault(id, []).append((State(id, json.loads(state)), until))
        with_past = [replace(one, past=past.get(one.id, ())) for one in schedules]
        record_ticks(as_many(with_past, lambda one, budget: _settled(one, now, budget)), now)
    failpoint("before_settle_commit")


def _settled(schedule: Claimed, now: datetime, budget: Budget) -> Owed:
    begun = schedule.accounted_until or (schedule.created_at if schedule.past else schedule.edited_at)
    owed = Owed(claimed=schedule, accounted=begun, spec=schedule.spec, anchor=schedule.anchor_at)
    was_off = False
    for state, until in schedule.past:
        if until > owed.accounted:
            _account_for_past(owed, state, until, now, was_off, budget)
        was_off = not state.enabled
        # Not where the next state has to know more than what is written down.
        owed.unsettled |= not (was_off or owed.is_done) and budget.is_spent
        if owed.unsettled:
            return owed
    if not schedule.state.enabled:
        return _switched_off(owed)
    try:
        _arm(owed, was_off)
    except Exception as error:
        owed.spec = ""
        owed.refuse(error)
    return owed


def _account_for_past(owed: Owed, state: State, until: datetime, now: datetime, was_off: bool, budget: Budget) -> None:
    before = owed.count
    try:
        owed.is_done &= not _follow(owed, state, owed.accounted, was_off)
        plan = leave_to_the_other(owed, state.plan(owed.anchor))
        if not state.enabled:
            owed.skips += plan.together(owed.accounted, until, Reason.PAUSED)
        elif owed.is_done or used_up(owed):
            pass
        elif (first := next(plan.fires(owed.accounted), None)) and first <= until:
            newest = first if plan.once else plan.newest(first, until)
            decide(owed, state, plan, first, newest, now, TICKS, budget)
            owed.unsettled = owed.accounted < newest and not used_up(owed)
        owed.is_done |= plan.once and owed.count > before
        if state.enabled and not (owed.is_done or owed.unsettled or used_up(owed)):
            skips, owed.accounted = plan.account(owed.accounted, until, [], [(EVER, Reason.MISSED)], budget.go_on)
            owed.skips += skips
            owed.unsettled = owed.accounted < until
    except Exception as error:
        log.error("beat.past_refused", schedule=owed.claimed.name, reason=repr(error))
        if state.enabled:
            owed.skips.append(refused_stretch(owed.accounted, until, error))
    if not owed.unsettled:
        owed.accounted = max(owed.accounted, until)


def _follow(owed: Owed, state: State, since: datetime, was_off: bool) -> bool:
    """Anchor the rule of a state that begins; was it another one before? An interval that was off begins afresh as well."""
    spec = state.spec
    is_new = spec != owed.spec
    if isinstance(state.rule(), Interval) and (is_new or was_off or owed.anchor is None):
        elsewhere = owed.claimed.ran_elsewhere
        goes_on = elsewhere and (state.start is None or state.start < elsewhere)
        owed.anchor = elsewhere if goes_on else state.start or since
    owed.spec = spec
    return is_new


def _arm(owed: Owed, was_off: bool) -> None:
    schedule, state = owed.claimed, owed.claimed.state
    is_new = _follow(owed, state, owed.accounted, was_off)
    owed.is_done &= not is_new
    plan = leave_to_the_other(owed, state.plan(owed.anchor))
    begun = owed.accounted
    if isinstance(plan.rule, Clocked) and is_new:
        # However late its row came, it fires, once.
        begun = min(begun, just_before(plan.rule.at))
    if (owed.is_done and state.one_off) or is_done_elsewhere(owed, plan):
        owed.retire(Rest.DONE)
    elif used_up(owed):
        owed.retire(Rest.USED_UP)
    else:
        owed.arm(plan, begun)
        if owed.rest and state.one_off and schedule.last_fire_at:
            owed.rest = Rest.DONE


def _switched_off(owed: Owed) -> Owed:
    schedule = owed.claimed
    # One that was done stays so until it has another rule; what fired under an earlier one says nothing.
    if schedule.state.one_off and (owed.is_done or (schedule.rest == Rest.DONE and not has_other_rule(owed))):
        owed.rest = Rest.DONE
    else:
        owed.rest = Rest.USED_UP if used_up(owed) else Rest.OFF
    return owed


# Firing


# Recording
