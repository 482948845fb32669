"""One batch of events to runs: read in order, match, admit, enqueue; one serial transaction under one advisory lock."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

import structlog
from django.conf import settings
from django.db import InterfaceError, OperationalError, transaction

from runs import keys, waits
from runs.cancel import lock_runs, replace_others
from runs.enqueue import enqueue, join, unstarted
from runs.failpoints import failpoint
from runs.sql import database_now, execute, execute_many, fetch
from triggers import rates, windows
from triggers.admission import Ledger, Match, Refusal, admit, close, match_of
from triggers.items import Item, Matched, match_items, read_items, wanted_by
from triggers.leadership import LOCK
from triggers.models import Decision, Trigger
from triggers.rules import Rules as Rules
from triggers.waited import waits_ended_by

log = structlog.get_logger(__name__)

WINDOWS = "SELECT min(due_at) - clock_timestamp() FROM triggers_window"
TRY_LOCK = "SELECT pg_try_advisory_xact_lock(%s::int, %s::int)"
OPEN_EVENTS = "SELECT id FROM triggers_event WHERE id = ANY(%s::uuid[]) AND dispatched_at IS NULL"
OPEN_REDISPATCHES = "SELECT id FROM triggers_redispatch WHERE id = ANY(%s::bigint[]) AND dispatched_at IS NULL"
DECIDE = """
INSERT INTO triggers_decision (event_id, trigger_id, replay_id, outcome, reason, run_id)
VALUES (%s::uuid, %s::uuid, %s::uuid, %s::text, %s::text, %s::uuid)
ON CONFLICT (event_id, trigger_id, replay_id) DO UPDATE
  SET outcome = excluded.outcome, reason = excluded.reason, run_id = excluded.run_id
  WHERE triggers_decision.outcome IN ('held', 'collected')
"""
COLLECTED_INTO = """
UPDATE triggers_decision SET run_id = %s::uuid
WHERE event_id = ANY(%s::uuid[]) AND trigger_id = %s::uuid AND replay_id = %s::uuid AND outcome = 'collected'
"""
MARK_EVENTS = "UPDATE triggers_event SET dispatched_at = clock_timestamp() WHERE id = ANY(%s::uuid[])"
MARK_REDISPATCHES = "UPDATE triggers_redispatch SET dispatched_at = clock_timestamp() WHERE id = ANY(%s::bigint[])"
RESUMED = """
UPDATE triggers_decision SET outcome = 'resumed', run_id = %s::uuid
WHERE event_id = %s::uuid AND trigger_id = %s::uuid AND replay_id = %s::uuid AND outcome = 'held'
"""
# An edited trigger does not want what was held for it: a filter's miss leaves no decision.
FORGET_HELD = """
DELETE FROM triggers_decision
WHERE event_id = %s::uuid AND trigger_id = %s::uuid AND replay_id = %s::uuid AND outcome = 'held'
"""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What became of one: events dispatched, events left because a key's lock was taken, and whether there may be more."""

    dispatched: int = 0
    left: int = 0
    standby: bool = False

    def __add__(self, other: "Batch") -> "Batch":
        return Batch(
            dispatched=self.dispatched + other.dispatched,
            left=self.left + other.left,
            standby=self.standby or other.standby,
        )


def look_for_windows() -> timedelta | None:
    """When the next window is over (past: now); None: there is none."""
    [(due_in,)] = fetch(WINDOWS)
    found: timedelta | None = due_in
    return found


def dispatch(rules: Rules) -> Batch:
    """Dispatch one batch; one that fails for its events' sake is dispatched event by event."""
    items = read_items(settings.WAKEFUL_DISPATCH_BATCH)
    try:
        return dispatch_items(items, rules) if items else Batch()
    except Exception as error:
        if will_pass(error):
            raise
        log.exception("dispatch.batch_refused")
        return dispatch_one_by_one(items, rules)


def will_pass(error: Exception) -> bool:
    """Is it the database's trouble rather than the events'? A row over one of its limits is the events'."""
    sqlstate = getattr(error.__cause__, "sqlstate", None) or ""
    return isinstance(error, (OperationalError, InterfaceError)) and not sqlstate.startswith("54")


def dispatch_items(items: Sequence[Item], rules: Rules) -> Batch:
    """Match, then decide under the dispatch lock, if by then neither the triggers nor the events have moved on."""
    matched = match_items(items, rules.current())
    failpoint("before_waits_are_looked_up")
    awaited = waits_ended_by(items)
    with transaction.atomic():
        if not _try_lock():
            return Batch(standby=True)
        if rules.have_changed():
            return Batch(left=len(items))
        unheard = waits.end_by_events(awaited)
        for one in matched:
            one.is_unheard = one.item.event_id in unheard
        batch = settle_matched(still_undispatched(matched))
        failpoint("before_dispatch_commit")
    failpoint("after_dispatch_commit")
    return batch


def settle_matched(matched: Sequence[Matched]) -> Batch:
    """Admit in `seq` order. An event that needs a key whose lock is taken is left to the next batch, and with it every
    later event of its keys: the order per key is the order of arrival. The same goes for one that a locked run waits for."""
    wanted = {key for one in matched for key in one.keys}
    locked = lock_keys([match for one in matched for match in one.matches])
    kept = without_busy(matched, wanted - locked)

    matches = [match for one in kept for match in one.matches]
    ledger = open_ledger(matches)
    record([refusal for one in kept for refusal in one.refusals])
    admit(matches, ledger)
    settle(ledger)
    mark_resumed([one.item for one in kept], ledger)
    forget_held([one.item for one in kept if not one.matches and not one.refusals])
    mark_dispatched([one.item for one in kept])
    return Batch(dispatched=len(kept), left=len(matched) - len(kept))


def close_windows(rules: Rules) -> Batch:
    """Make runs of what the windows that are over have collected; one by one where that fails for a window's sake."""
    over = windows.due(database_now(), settings.WAKEFUL_DISPATCH_BATCH)
    try:
        return close_these(over, rules) if over else Batch()
    except Exception as error:
        if will_pass(error):
            raise
        log.exception("dispatch.windows_refused")
        return sum((close_or_give_up(group, rules) for group in over), Batch())


def close_these(groups: Sequence[windows.Group], rules: Rules) -> Batch:
    """Close the windows of these groups, if they still are over; one whose key is busy is left to the next time."""
    index = rules.current()
    with transaction.atomic():
        if not _try_lock():
            return Batch(standby=True)
        if rules.have_changed():
            return Batch(left=len(groups))
        found, at = windows.read(groups), database_now()
        over = [found[group] for group in groups if group in found and found[group].due_at <= at]
        matches = [(window, match_of(window, index.by_id[window.trigger_id])) for window in over]
        locked = lock_keys([match for _, match in matches])
        kept = [(window, match) for window, match in matches if match.key is None or match.key in locked]
        ledger = open_ledger([match for _, match in kept])
        for window, match in kept:
            close(window, match, ledger)
        settle(ledger)
        failpoint("before_window_commit")
    return Batch(dispatched=len(kept), left=len(matches) - len(kept))


def close_or_give_up(group: windows.Group, rules: Rules) -> Batch:
    try:
        return close_these([group], rules)
    except Exception as error:
        if will_pass(error):
            raise
        log.exception("dispatch.window_refused", trigger=str(group[0]), key=group[1])
        return give_up_window(group, error)


def give_up_window(group: windows.Group, error: Exception) -> Batch:
    """Say of every event that the window collected why it got no run."""
    with transaction.atomic():
        if not _try_lock():
            return Batch(standby=True)
        given_up = list(windows.read([group]).values())
        record([give_up_on(window.event_ids, window.trigger_id, window.replay_id, error) for window in given_up])
        windows.write([], given_up)
    return Batch(dispatched=len(given_up))


def lock_keys(matches: Sequence[Match]) -> set[str]:
    """Lock the keys that can be decided on now: nobody else is at it, nor at a run of theirs that is to be replaced."""
    locked = keys.try_lock(match.key for match in matches if match.key)
    replacing = {match.key for match in matches if match.key and match.rule.overlap == Trigger.Overlap.CANCEL_PREVIOUS}
    return locked - (replacing - lock_runs(locked & replacing))


def open_ledger(matches: Sequence[Match]) -> Ledger:
    """Read what admission needs to know about these matches; under their keys' locks, and the dispatch lock."""
    limits = {match.key: match.rule.key_limit for match in matches if match.key}
    may_join = [(m.key, m.replay_id) for m in matches if m.key and m.rule.overlap == Trigger.Overlap.QUEUE_ONE]
    collected = [match.window for match in matches if match.rule.intake.has_window]
    counted = {match.group for match in matches if match.rule.intake.rate}
    counted |= {match.loop for match in matches if match.loop}
    return Ledger(
        now=database_now(),
        keys=keys.states(limits),
        unstarted=unstarted(may_join),
        uses=rates.read(counted),
        windows=windows.read(collected),
    )


def settle(ledger: Ledger) -> None:
    """Write down what admission has decided."""
    enqueue(ledger.new)
    join(ledger.unstarted.values())
    record(ledger.refused)
    rates.write(ledger.uses)
    windows.write(ledger.windows.values(), [window for window, _ in ledger.closed])
    trace_collected(ledger)
    for key, run_id in ledger.replacing.items():
        replace_others(key, run_id)
    keys.promote(ledger.replacing)


def trace_collected(ledger: Ledger) -> None:
    """Say of every event that a window has given to a run which run that is."""
    rows = [
        (run_id, window.event_ids, window.trigger_id, window.replay_id) for window, run_id in ledger.closed if run_id
    ]
    if rows:
        execute_many(COLLECTED_INTO, rows)


def without_busy(matched: Sequence[Matched], busy: set[str]) -> list[Matched]:
    kept = []
    for one in matched:
        if one.is_unheard or one.keys & busy:
            busy = busy | one.keys
        else:
            kept.append(one)
    return kept


def still_undispatched(matched: Sequence[Matched]) -> list[Matched]:
    """Those that no other dispatcher has dispatched since they were read."""
    events = [one.item.event_id for one in matched if one.item.redispatch_id is None]
    redispatches = [one.item.redispatch_id for one in matched if one.item.redispatch_id is not None]
    open_events = {id for (id,) in fetch(OPEN_EVENTS, [events])} if events else set()
    open_redispatches = {id for (id,) in fetch(OPEN_REDISPATCHES, [redispatches])} if redispatches else set()
    return [
        one
        for one in matched
        if (
            one.item.event_id in open_events
            if one.item.redispatch_id is None
            else one.item.redispatch_id in open_redispatches
        )
    ]


def dispatch_one_by_one(items: Sequence[Item], rules: Rules) -> Batch:
    """Find the event that cannot be dispatched, and record that; the others go on."""
    dispatched = 0
    for item in items:
        try:
            batch = dispatch_items([item], rules)
        except Exception as error:
            if will_pass(error):
                raise
            log.exception("dispatch.event_refused", event_id=str(item.event_id))
            batch = give_up(item, rules, error)
        dispatched += batch.dispatched
        if not batch.dispatched:
            return Batch(dispatched=dispatched, left=batch.left, standby=batch.standby)
    return Batch(dispatched=dispatched)


def give_up(item: Item, rules: Rules, error: Exception) -> Batch:
    """Say of every trigger that wanted the event why it got no run."""
    wanted, awaited = wanted_by(item, rules.current()), waits_ended_by([item])
    with transaction.atomic():
        if not _try_lock():
            return Batch(standby=True)
        if waits.end_by_events(awaited):
            return Batch(left=1)
        record([give_up_on([item.event_id], rule.id, item.replay_id, error) for rule in wanted])
        mark_dispatched([item])
    return Batch(dispatched=1)


def give_up_on(event_ids: Sequence[UUID], trigger_id: UUID, replay_id: UUID, error: Exception) -> Refusal:
    return Refusal(
        event_ids=event_ids,
        trigger_id=trigger_id,
        replay_id=replay_id,
        outcome=Decision.Outcome.ERROR,
        reason=repr(error)[:2000],
    )


def record(refusals: Sequence[Refusal]) -> None:
    if refusals:
        execute_many(
            DECIDE,
            [(id, r.trigger_id, r.replay_id, r.outcome, r.reason, r.run_id) for r in refusals for id in r.event_ids],
        )


def mark_resumed(items: Sequence[Item], ledger: Ledger) -> None:
    resumed = {item.event_id for item in items if item.is_resumption}
    rows = [
        (run.id, run.event_ids[0], run.trigger_id, run.replay_id) for run in ledger.new if run.event_ids[0] in resumed
    ]
    if rows:
        execute_many(RESUMED, rows)


def forget_held(unwanted: Sequence[Item]) -> None:
    rows = [(item.event_id, item.trigger_id, item.replay_id) for item in unwanted if item.trigger_id is not None]
    if rows:
        execute_many(FORGET_HELD, rows)


def mark_dispatched(items: Sequence[Item]) -> None:
    events = [item.event_id for item in items if item.redispatch_id is None]
    redispatches = [item.redispatch_id for item in items if item.redispatch_id is not None]
    if events:
        execute(MARK_EVENTS, [events])
    if redispatches:
        execute(MARK_REDISPATCHES, [redispatches])


def _try_lock() -> bool:
    return bool(fetch(TRY_LOCK, LOCK)[0][0])
