"""Begin the transaction of a batch: in one statement the dispatch lock, the version of the rules, the locks of events and triggers, what
earlier parts of the events have settled, and the time."""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from agents.kernel.ids import run_id
from runs.db.sql import fetch
from runs.db.trip import one_trip
from runs.enqueue import IS_FREE
from triggers.dispatch.rules import Version
from triggers.dispatch_lock import LOCK, TRY_SHARED
from triggers.matching.match import Matched
from triggers.matching.matches import Match

BEGIN = f"""
SELECT begun.*, clock_timestamp() AS now, CASE WHEN %(queue)s::text IS NOT NULL THEN {IS_FREE.format(queue="%(queue)s::text").strip()} END
FROM triggers_begin_batch(
  %(space)s::int, %(lock)s::int, %(events)s::uuid[], %(triggers)s::uuid[],
  %(earlier_runs)s::uuid[], %(earlier_events)s::uuid[], %(earlier_replays)s::uuid[]) begun
"""  # noqa: S608  (our own parts)
# BEGIN takes a lock alone. A shard shares LOCK, and takes one with its own number alone.
FIRST_SHARD = 100
OPEN_EVENTS = "SELECT id FROM triggers_event WHERE id = ANY(%s::uuid[]) AND dispatched_at IS NULL"
OPEN_REDISPATCHES = "SELECT id FROM triggers_redispatch WHERE id = ANY(%s::bigint[]) AND dispatched_at IS NULL"
# The foreign key of a decision also locks its event.
LOCK_REDISPATCHES = """
SELECT again.id FROM triggers_redispatch again JOIN triggers_event event ON event.id = again.event_id
WHERE again.id = ANY(%s::bigint[]) AND again.dispatched_at IS NULL
FOR NO KEY UPDATE OF again SKIP LOCKED FOR KEY SHARE OF event SKIP LOCKED
"""
TRIGGERS_THERE = "SELECT id FROM triggers_trigger WHERE id = ANY(%s::uuid[])"


@dataclass(frozen=True, kw_only=True)
class Begun:
    """What the transaction holds and knows: the version of the rules, the time, the queue of a lone run if no other one is ready there,
    the events and triggers that it has locked, and the runs and decisions of earlier parts of its events."""

    version: Version
    now: datetime
    free_queue: str | None
    events: Set[UUID]
    triggers: Set[UUID]
    made: Set[UUID]
    decided: Set[tuple[UUID, ...]]  # event, replay, trigger

    def undispatched(self, matched: Sequence[Matched]) -> list[Matched]:
        """The events that no other dispatcher has dispatched since they were read. An event is marked as locked if another session
        has locked its row or the row of one of its triggers; it is left to a later batch."""
        redispatches = {one.item.redispatch_id for one in matched if one.item.redispatch_id is not None}
        undispatched, busy = _found(events_of(matched), self.events, OPEN_EVENTS)
        _, busy_triggers = _found(triggers_of(matched), self.triggers, TRIGGERS_THERE)
        locked_again = {id for (id,) in fetch(LOCK_REDISPATCHES, [list(redispatches)])} if redispatches else set[int]()
        again, busy_again = _found(redispatches, locked_again, OPEN_REDISPATCHES)
        for one in matched:
            one.is_locked = one.item.identity in busy | busy_again or not one.triggers.isdisjoint(busy_triggers)
        return [one for one in matched if one.item.identity in undispatched | again]

    def forget_settled(self, some: Sequence[Matched]) -> None:
        """Drop matches that earlier parts of the events have settled: they have a run with that id, or a decision."""
        for one in some:
            event = one.item.event_id, one.item.replay_id
            one.matches = [
                match
                for match in one.matches
                if run_id_of(match) not in self.made and (*event, match.rule.id) not in self.decided
            ]
            one.refusals = [refusal for refusal in one.refusals if (*event, refusal.trigger_id) not in self.decided]


def begin(matched: Sequence[Matched], piece: int, shard: int | None = None) -> Begun | None:
    """None: another dispatcher holds the dispatch lock. An event of more than `piece` is dispatched in parts. With `shard`, the dispatch
    lock is shared with other shards, and a lock of its own number is taken besides."""
    earlier = [one for one in matched if one.size and (one.may_be_settled or one.size > piece)]
    queues = [match.rule.policy.queue for one in matched for match in one.matches]
    queue = queues[0] if len(queues) == 1 else None
    with one_trip() as trip:
        shared = None if shard is None else trip.add(TRY_SHARED, LOCK)
        answer = trip.add(
            BEGIN,
            {
                "space": LOCK[0],
                "lock": LOCK[1] if shard is None else FIRST_SHARD + shard,
                "events": list(events_of(matched)),
                "triggers": list(triggers_of(matched)),
                "earlier_runs": [run_id_of(match) for one in earlier for match in one.matches],
                "earlier_events": [one.item.event_id for one in earlier],
                "earlier_replays": [one.item.replay_id for one in earlier],
                "queue": queue,
            },
        )
    [(is_locked, version, changed_by, backend, events, triggers, made, decided, now, is_free)] = answer.rows()
    if not is_locked or (shared is not None and not shared.rows()[0][0]):
        return None
    return Begun(
        version=[(version, changed_by, backend)],
        now=now,
        free_queue=queue if is_free else None,
        events=set(events),
        triggers=set(triggers),
        made=set(made or ()),
        decided={tuple(map(UUID, one.split())) for one in decided or ()},
    )


def events_of(matched: Sequence[Matched]) -> set[UUID]:
    return {one.item.event_id for one in matched if one.item.redispatch_id is None}


def triggers_of(matched: Sequence[Matched]) -> set[UUID]:
    return set[UUID]().union(*(one.triggers for one in matched))


def run_id_of(match: Match) -> UUID:
    return run_id(match.rule.id, match.event_ids[0], match.replay_id)


def _found(ids: Set[Any], locked: Set[Any], there: str) -> tuple[set[Any], set[Any]]:
    """Those that exist, and those of them that another session has locked, given those that this one has locked."""
    missing = ids - locked
    elsewhere = {id for (id,) in fetch(there, [list(missing)])} if missing else set()
    return {*locked, *elsewhere}, elsewhere
