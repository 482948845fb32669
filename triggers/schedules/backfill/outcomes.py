"""The outcomes of the events of a backfill, and its cancellation."""

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from agents.kernel.ids import run_id
from runs import keys
from runs.db.sql import execute, fetch
from runs.models import NIL, Run
from runs.states import RunStatus
from runs.transitions.leave import take_blocked_away
from runs.transitions.stop import stop
from triggers.matching.backfill_terms import key_of
from triggers.models import Backfill

OPEN = """
SELECT tick.id, tick.event_id, event.target_id
FROM triggers_backfilltick tick LEFT JOIN triggers_event event ON event.id = tick.event_id
WHERE tick.backfill_id = %s::uuid AND tick.outcome = 'open'
"""
# In one statement, so that it sees a run, its event and the decision on that as they were at one moment.
SETTLE = """
UPDATE triggers_backfilltick tick SET outcome = ended.outcome
FROM (
  SELECT open.tick_id, CASE
    WHEN run.status IN ('succeeded', 'failed', 'cancelled') THEN run.status
    WHEN run.id IS NULL AND (event.id IS NULL OR event.dispatched_at IS NOT NULL)
      AND coalesce(decision.outcome, '') NOT IN ('held', 'resumed') THEN 'refused' END AS outcome
  FROM unnest(%(ticks)s::bigint[], %(events)s::uuid[], %(runs)s::uuid[]) AS open(tick_id, event_id, run_id)
  LEFT JOIN triggers_event event ON event.id = open.event_id
  LEFT JOIN runs_run run ON run.id = open.run_id
  LEFT JOIN triggers_decision decision
    ON decision.event_id = event.id AND decision.trigger_id = event.target_id AND decision.replay_id = %(nil)s::uuid
) ended
WHERE tick.id = ended.tick_id AND tick.outcome = 'open' AND ended.outcome IS NOT NULL
"""
IS_HELD = """
EXISTS (SELECT FROM triggers_decision decision
        WHERE decision.event_id = event.id AND decision.trigger_id = event.target_id AND decision.replay_id = %(nil)s::uuid
          AND decision.outcome = 'held')
"""
HELD = """
SELECT tick.backfill_id, count(*) FROM triggers_backfilltick tick JOIN triggers_event event ON event.id = tick.event_id
WHERE tick.backfill_id = ANY(%(backfills)s::uuid[]) AND tick.outcome = 'open' AND {is_held} GROUP BY tick.backfill_id
""".replace("{is_held}", IS_HELD)
WAITING = """
SELECT event.id FROM triggers_backfilltick tick JOIN triggers_event event ON event.id = tick.event_id
WHERE tick.backfill_id = %(backfill)s::uuid AND tick.outcome = 'open' AND (event.dispatched_at IS NULL OR {is_held})
""".replace("{is_held}", IS_HELD)
# One that was held may be about to be offered again.
DROP = [
    """
    INSERT INTO triggers_decision (event_id, trigger_id, replay_id, outcome, reason)
    SELECT event.id, trigger.id, %(nil)s::uuid, 'dropped', %(reason)s::text
    FROM triggers_event event JOIN triggers_trigger trigger ON trigger.id = event.target_id
    WHERE event.id = ANY(%(events)s::uuid[])
    ON CONFLICT (event_id, trigger_id, replay_id) DO UPDATE SET outcome = excluded.outcome, reason = excluded.reason
    """,
    """
    UPDATE triggers_event SET dispatched_at = clock_timestamp()
    WHERE id = ANY(%(events)s::uuid[]) AND dispatched_at IS NULL
    """,
    """
    UPDATE triggers_redispatch SET dispatched_at = clock_timestamp()
    WHERE event_id = ANY(%(events)s::uuid[]) AND replay_id = %(nil)s::uuid AND dispatched_at IS NULL
    """,
    """
    UPDATE triggers_backfilltick SET outcome = 'cancelled'
    WHERE backfill_id = %(backfill)s::uuid AND event_id = ANY(%(events)s::uuid[]) AND outcome = 'open'
    """,
]


class OpenTick(NamedTuple):
    """A nominal time without an outcome yet; `trigger_id` is the target of its event."""

    id: int
    event_id: UUID
    trigger_id: UUID


def open_ticks(backfill: Backfill) -> list[OpenTick]:
    return [OpenTick(id, event_id, target_id or UUID(NIL)) for id, event_id, target_id in fetch(OPEN, [backfill.pk])]


def settle(ticks: Sequence[OpenTick]) -> None:
    """Record the outcome of each tick: how its run ended, or that it became no run. One that is held, runs or waits stays
    open."""
    if ticks:
        nil = UUID(NIL)
        runs = [run_id(tick.trigger_id, tick.event_id, nil) for tick in ticks]
        ids, events = [tick.id for tick in ticks], [tick.event_id for tick in ticks]
        execute(SETTLE, {"ticks": ids, "events": events, "runs": runs, "nil": nil})


def held(backfills: Sequence[UUID]) -> dict[UUID, int]:
    """The number of events that wait for their trigger to be resumed, by backfill, where there are any."""
    return dict(fetch(HELD, {"backfills": list(backfills), "nil": NIL}))


def drop_waiting(backfill: Backfill, reason: str) -> int:
    """Drop its events that have become no run yet, under the dispatch lock; return how many."""
    events = [id for (id,) in fetch(WAITING, {"backfill": backfill.pk, "nil": NIL})]
    for statement in DROP if events else ():
        execute(statement, {"backfill": backfill.pk, "events": events, "nil": NIL, "reason": reason})
    return len(events)


def cancel_queued(backfill: Backfill, ticks: Sequence[OpenTick]) -> None:
    """Cancel its queued runs; those without a slot first, so that no freed slot goes to another of them. If its key is
    locked, nothing is done: call it again."""
    by = f"backfill {backfill.pk}, which was cancelled"
    for key in keys.try_lock(key_of(tick.trigger_id, backfill.pk) for tick in ticks):
        take_blocked_away(key, reason=f"cancelled by {by}")
        for run in Run.objects.live().filter(key=key, status=RunStatus.QUEUED).order_by("seq"):
            stop(run, by)
