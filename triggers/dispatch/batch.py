"""Dispatch a batch of events: read in order, match, admit, enqueue, in one transaction under the dispatch lock."""

from collections import Counter
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from django.conf import settings
from django.db import transaction

from runs import waits
from runs.db.sql import Query, fetch
from runs.db.trip import one_trip, reach
from runs.failpoints import failpoint
from runs.queues import entrance
from runs.queues.stayers import Stayers
from triggers.dispatch import offers, rates, windows
from triggers.dispatch.admission import Ledger, admit
from triggers.dispatch.begin import Begun, begin, run_id_of
from triggers.dispatch.decisions import (
    Resumed,
    forget_held,
    give_up_on,
    mark_resumed,
    marks,
    record,
    write_decisions,
)
from triggers.dispatch.listeners import match_listeners
from triggers.dispatch.order_of_keys import Behind
from triggers.dispatch.rules import Rules
from triggers.dispatch.waiting_runs import waits_ended_by
from triggers.dispatch_lock import try_lock
from triggers.matching.index import Index
from triggers.matching.match import Matched, match_items, piece_of, wanted_by, within
from triggers.matching.matches import Match
from triggers.matching.pending import Item, read_items
from triggers.matching.slow_lane import Costly
from triggers.models import Trigger
from triggers.outbound.enter import enter
from triggers.switches.arm import arm, expect, mend
from triggers.switches.fire import fire
from triggers.switches.note import note

MADE = "SELECT id FROM runs_run WHERE id = ANY(%s::uuid[])"
DECIDED = "SELECT trigger_id FROM triggers_decision WHERE event_id = %s::uuid AND replay_id = %s::uuid"

MOST = 1000  # runs, decisions and woken runs per transaction


# Dispatches of these events, in their order, what needs neither this process nor the events that runs wait for (the second argument), and
# returns the rest.
Beside = Callable[[Sequence[Matched], Set[UUID]], tuple["Batch", list[Matched]]]


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The result of a batch: events dispatched; `partly` dispatched, or held because they are costly; `left` because a lock was
    taken; `changes` of watched tables among those that were read; runs and decisions `made`; runs that are ready now and rung for at
    once, by queue (`ring_for`); runs that may have become `ready` otherwise; `again`, if the look that led here cannot know when the
    next work is due; and `standby` if another dispatcher holds the dispatch lock."""

    dispatched: int = 0
    partly: int = 0
    left: int = 0
    changes: int = 0
    made: int = 0
    ready: int = 0
    ring_for: Counter[str] = field(default_factory=Counter)
    again: bool = False
    standby: bool = False

    def __add__(self, other: "Batch") -> "Batch":
        return Batch(
            dispatched=self.dispatched + other.dispatched,
            partly=self.partly + other.partly,
            left=self.left + other.left,
            changes=self.changes + other.changes,
            made=self.made + other.made,
            ready=self.ready + other.ready,
            ring_for=self.ring_for + other.ring_for,
            again=self.again or other.again,
            standby=self.standby or other.standby,
        )

    @property
    def has_only_rung(self) -> bool:
        """Whether one event was dispatched, completely, runs are rung for, and nothing else is to be done at once."""
        return bool(self.ring_for) and self == Batch(dispatched=1, made=self.made, ring_for=self.ring_for)

    @property
    def has_progressed(self) -> bool:
        return self.dispatched + self.partly > 0


def dispatch(rules: Rules, most: int = MOST, beside: Beside | None = None) -> Batch:
    """Dispatch one batch. Raises its error; `triggers.dispatch.failures` handles it."""
    if offers.are_due():
        offers.move()
    items = read_items(settings.WAKEFUL_DISPATCH_BATCH)
    return dispatch_items(within(items, rules.current(), most), rules, most, beside=beside) if items else Batch()


def dispatch_items(
    items: Sequence[Item],
    rules: Rules,
    most: int = MOST,
    behind: Behind | None = None,
    costly: Costly | None = None,
    stayers: Stayers | None = None,
    beside: Beside | None = None,
) -> Batch:
    """Match with the rules as they were read last, then decide under the dispatch lock, except for events or triggers that have changed
    since. With `costly`, no expression holds up the others; with `stayers`, children that wait for the new runs are woken; what can be is
    dispatched `beside` it, before the rest."""
    index = rules.index
    matched = costly.match(items, index) if costly else match_items(items, index)
    if behind:
        matched = behind.without_waiting(matched)
    matched = match_listeners(matched, rules.listeners, costly.others if costly else None)
    failpoint("before_waits_are_looked_up")
    awaited, may_end_more = waits_ended_by(items, most)
    read, done = Batch(left=len(items) - len(matched), changes=sum(item.is_change for item in items)), Batch()
    if beside:
        done, rest = beside(matched, {*awaited.values(), *may_end_more})
        if costly:
            # Which ones are left is unknown: then all keep their answers.
            costly.settled([] if done.left else _others(matched, rest))
        matched = rest
        if not matched and not awaited:
            return read + done
    with transaction.atomic():
        begun = begin(matched, piece_of(most))
        if begun is None:
            return done + Batch(standby=True)
        outdated = rules.concerned(items, index, begun.version)
        woken, unheard = waits.end_by_events(awaited)
        unheard |= may_end_more
        for one in matched:
            one.is_unheard = one.item.event_id in unheard or (bool(outdated) and one.item in outdated)
        batch, left = settle_matched(begun, begun.undispatched(matched), most)
        batch += Batch(ring_for=woken.ready, ready=woken.others)
        with one_trip() as trip:
            trip.add_all(left)
            reach("before_dispatch_commit", trip)
            if stayers:
                stayers.commit(batch.ring_for, trip)
    failpoint("after_dispatch_commit")
    held = costly.settled([one for one in matched if one.is_settled or one.later]) if costly else 0
    return read + done + batch + Batch(partly=held + bool(may_end_more))


def settle_matched(begun: Begun, matched: Sequence[Matched], most: int = MOST) -> tuple[Batch, list[Query]]:
    """Admit in `seq` order. An event whose key is locked elsewhere is left to the next batch, with all later events of its
    keys, so that the order per key is the order of arrival. The same applies if a locked run waits for it. Of an event that
    is too large for one batch only a part is admitted. Also returns the statements that are left to execute before the commit."""
    # A redispatch is not dispatched in part.
    postponed = [one for one in matched if one.is_partial and one.item.is_resumption]
    matched = [one for one in matched if not (one.is_partial and one.item.is_resumption)]
    large = [one for one in matched if one.size > piece_of(most) and not one.is_locked]
    begun.forget_settled([one for one in matched if one.may_be_settled or one in large])
    for one in large:
        one.keep(piece_of(most))
    wanted = {match.key for one in matched for match in one.matches if match.key}
    locked = lock_keys([match for one in matched for match in one.matches])
    kept = without_busy(matched, wanted - locked, large)

    resumed = forget_made([one for one in kept if one.item.is_resumption])
    matches = [match for one in kept for match in one.matches]
    ledger = open_ledger(matches, begun.now)
    refusals = [refusal for one in kept for refusal in one.refusals]
    record(refusals)
    admit(matches, ledger)
    left = write_decisions(ledger, begun.free_queue)
    mark_resumed([one.item for one in kept], ledger, resumed)
    forget_held([one.item for one in kept if not one.matches and not one.refusals])
    for one in (*kept, *postponed):
        one.is_settled = not one.later
    done = [one for one in kept if one.is_settled and not one.is_partial]
    enter(kept)
    note(done)
    batch = Batch(
        dispatched=len(done),
        partly=sum(one.size > 0 for one in kept if one.later),
        left=len(matched) - len(done),
        made=len(refusals) + len(matches),
        ready=len(ledger.replacing) + sum(bool(run.joined) for run in ledger.unstarted.values()),
        ring_for=Counter(run.policy.queue for run in ledger.new if run.is_ready),
    )
    return batch, [*left, *marks([one.item for one in done])]


def forget_made(again: Sequence[Matched]) -> list[Resumed]:
    """Drop matches that already have a run, so that an event that is offered again gets no second run; returns these runs."""
    runs = {run_id_of(match): match for one in again for match in one.matches}
    made = {id for (id,) in fetch(MADE, [list(runs)])} if runs else set()
    for one in again:
        one.matches = [match for match in one.matches if run_id_of(match) not in made]
    return [(id, runs[id].event_ids[0], runs[id].rule.id, runs[id].replay_id) for id in made]


def lock_keys(matches: Sequence[Match]) -> set[str]:
    """Try to lock the keys; skip keys that are locked elsewhere or have a run to replace that is locked elsewhere."""
    keyed = [match for match in matches if match.key]
    replacing = {match.key for match in keyed if match.rule.overlap == Trigger.Overlap.CANCEL_PREVIOUS and match.key}
    return entrance.lock([match.key for match in keyed if match.key], replacing)


def open_ledger(matches: Sequence[Match], now: datetime) -> Ledger:
    """Read the data for admission, under the keys' locks and the dispatch lock; `now`: the time, read under the latter."""
    limits = {match.key: match.rule.key_limit for match in matches if match.key}
    may_join = [(m.key, m.replay_id) for m in matches if m.key and m.rule.overlap == Trigger.Overlap.QUEUE_ONE]
    collected = [match.window for match in matches if match.rule.intake.has_window]
    counted = {match.group for match in matches if match.rule.intake.rate}
    counted |= {match.loop for match in matches if match.loop}
    queue = entrance.read_queue_state(limits, may_join)
    return Ledger(
        now=now,
        keys=queue.keys,
        unstarted=queue.unstarted,
        uses=rates.read(counted, now),
        windows=windows.read(collected),
    )


def without_busy(matched: Sequence[Matched], busy: set[str], large: Sequence[Matched] = ()) -> list[Matched]:
    """The events that can be decided now; of large events, the part that can."""
    kept = []
    for one in matched:
        is_left = one.is_unheard or one.is_locked
        if one in large and not is_left:
            one.put_off(busy)
            busy = busy | one.later_keys
            kept.append(one)
        elif is_left or one.keys & busy:
            busy = busy | one.keys
        else:
            kept.append(one)
    return kept


def give_up(item: Item, rules: Rules, error: Exception, costly: Costly | None = None) -> Batch:
    """Record the error of an event that cannot be admitted: for the first trigger without an outcome, or, if the event cannot
    even be matched, for every trigger that listens to it. The other triggers go on."""
    index = rules.current()
    matched = _matched_or_none(item, index, costly)
    [leaving] = match_listeners([Matched(item=item)], rules.listeners, costly.others if costly else None)
    with transaction.atomic():
        begun = begin([matched or Matched(item=item)], piece=0)
        if begun is None:
            return Batch(standby=True)
        undispatched = begun.undispatched([matched or Matched(item=item)])
        if rules.version != begun.version or not undispatched or undispatched[0].is_locked:
            return Batch(left=1)
        if matched is None:
            decided = {id for (id,) in fetch(DECIDED, [item.event_id, item.replay_id])}
            failing = [rule.id for rule in wanted_by(item, index) if rule.id not in decided]
        else:
            begun.forget_settled([matched])
            failing = [match.rule.id for match in matched.matches[:1]]
        record([give_up_on([item.event_id], id, item.replay_id, error, item.reports) for id in failing])
        enter([leaving])
        if not leaving.is_partial and (matched is None or (matched.size <= 1 and not matched.is_partial)):
            note([leaving])
            with one_trip() as trip:
                trip.add_all(marks([item]))
    if costly:
        costly.forget([item.identity])
    return Batch(dispatched=1)


def arm_switches(rules: Rules) -> bool:
    """Let the timers of switches follow the rules as they are now; False: not yet."""
    rules.current()
    with transaction.atomic():
        if not try_lock() or rules.have_changed():
            return False
        mend()
        arm(rules.switches)
    return True


def follow_clock(rules: Rules) -> bool:
    """The clock was set back: let the timers of switches follow it; False: not yet."""
    with transaction.atomic():
        if not try_lock():
            return False
        mend()
        expect(rules.switches)
    return True


def open_absences(timers: Sequence[UUID], rules: Rules) -> Batch:
    """Open those of these timers of switches that are due."""
    rules.current()
    with transaction.atomic():
        if not try_lock():
            return Batch(standby=True)
        if rules.have_changed():
            return Batch(left=len(timers))
        looked_at = fire(timers, rules.switches)
    failpoint("after_absence_commit")
    return Batch(dispatched=looked_at, left=len(timers) - looked_at, made=looked_at)


def _others(matched: Sequence[Matched], some: Sequence[Matched]) -> list[Matched]:
    identities = {one.item.identity for one in some}
    return [one for one in matched if one.item.identity not in identities]


def _matched_or_none(item: Item, index: Index, costly: Costly | None) -> Matched | None:
    try:
        [matched] = costly.match([item], index) if costly else match_items([item], index)
    except Exception:
        return None
    return matched
