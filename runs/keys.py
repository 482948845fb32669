"""Concurrency keys. Decisions on which runs of a key are ready need the key's advisory lock, and a new statement after it. The
unique index on (key, slot) is the backstop; its violation is a bug."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from runs.db import ready_runs
from runs.db.sql import execute, fetch, fetch_as, fetch_column
from runs.states import LIVE_SQL

LOCK = "SELECT pg_advisory_xact_lock(hashtextextended(%s::text, 0))"
LOCK_ALL = "SELECT pg_advisory_xact_lock(hashtextextended(key, 0)) FROM unnest(%s::text[]) AS wanted(key)"
TRY_LOCK = """
SELECT key FROM unnest(%s::text[]) WITH ORDINALITY AS wanted(key, position)
WHERE pg_try_advisory_xact_lock(hashtextextended(key, 0))
"""
# The runs of a key without a place, in the terms of the two partial indexes, which leave out its `waiting` runs.
BLOCKED = "status = 'queued' AND slot IS NULL AND due_at IS NULL AND ready_at IS NULL"
DUE = "status = 'queued' AND slot IS NULL AND due_at IS NOT NULL"
# Counts at most as many runs as the limit: a million may wait behind one key. Arrays in a sub-SELECT: one plan for any number of keys,
# which would be made at each execution otherwise.
STATES = """
SELECT wanted.key, held.slots, behind.blocked, behind.queued, coalesce(held.first, behind.first) AS first
FROM unnest((SELECT %s::text[]), (SELECT %s::int[])) AS wanted(key, key_limit)
CROSS JOIN LATERAL (
  SELECT coalesce(array_agg(slot), '{}') AS slots, (array_agg(id ORDER BY slot))[1] AS first
  FROM runs_run WHERE key = wanted.key AND slot IS NOT NULL) held
CROSS JOIN LATERAL (
  SELECT count(*) FILTER (WHERE due_at IS NULL) AS blocked, count(*) AS queued, (array_agg(id ORDER BY seq))[1] AS first
  FROM ((SELECT id, seq, due_at FROM runs_run WHERE key = wanted.key AND {blocked} ORDER BY seq LIMIT wanted.key_limit)
        UNION ALL
        (SELECT id, seq, due_at FROM runs_run WHERE key = wanted.key AND {due} ORDER BY seq LIMIT wanted.key_limit)) waiting) behind
"""
STATES = STATES.replace("{blocked}", BLOCKED).replace("{due}", DUE)
# The blocked run of a key that gets a place, and which place: the first by `seq`, if fewer runs than its limit hold one. `freed`
# is (key, id): the id of a run that the same statement takes out of the key, which still looks as if it held its place or waited
# for one. With a limit of 1 no run passes another, not even one whose start is delayed.
NEXT = """
  SELECT blocked.id, (
    SELECT min(place) FROM generate_series(1, blocked.key_limit) AS place WHERE place <> ALL (held.slots))::smallint AS slot
  FROM {freed} AS freed
  CROSS JOIN LATERAL (
    SELECT id, key_limit, seq FROM runs_run WHERE key = freed.key AND {blocked} AND id IS DISTINCT FROM freed.id
    ORDER BY seq LIMIT 1) blocked
  CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(slot), '{}') AS slots FROM runs_run
    WHERE key = freed.key AND slot IS NOT NULL AND id IS DISTINCT FROM freed.id) held
  WHERE cardinality(held.slots) < blocked.key_limit
    AND (blocked.key_limit > 1 OR NOT EXISTS (
      SELECT FROM runs_run WHERE key = freed.key AND {due} AND seq < blocked.seq AND id IS DISTINCT FROM freed.id))
"""
NEXT = NEXT.replace("{blocked}", BLOCKED).replace("{due}", DUE)
# A run that gets a place gets its turn as well, like a run that is inserted ready (runs/enqueue.py): after the ready runs of other
# keys of its trigger, so that a key with a backlog passes none of them, and before the runs behind those. A run that has a turn
# keeps it. `{since}` is the turn of the run that makes room, or 0: the new turn is higher, and the search for the floor begins
# there.
PLACED = """
  WITH placed AS MATERIALIZED (
    SELECT next.slot, run.id, run.queue, run.priority, run.trigger, run.seq, {since} AS since
    FROM ({next}) next JOIN runs_run run ON run.id = next.id
  ), floor AS MATERIALIZED (
    SELECT asked.queue, asked.priority, floor.place
    FROM (SELECT queue, priority, min(since) AS since FROM placed GROUP BY queue, priority) asked CROSS JOIN LATERAL ({floor}) floor
  ), last AS MATERIALIZED (
    SELECT queue, priority, trigger, floor.place AS floor, ({last}) AS turn
    FROM (SELECT DISTINCT queue, priority, trigger FROM placed) asked JOIN floor USING (queue, priority)
  )
  SELECT placed.id, placed.slot, greatest(last.floor, last.turn + 1, placed.since + 1) - 1 + row_number() OVER (
    PARTITION BY queue, priority, trigger ORDER BY placed.seq) AS turn
  FROM placed JOIN last USING (queue, priority, trigger)
"""
PLACED = PLACED.replace("{floor}", ready_runs.FLOOR.replace("{of}", "asked").replace("{since}", "asked.since"))
PLACED = PLACED.replace("{last}", ready_runs.LAST.replace("{of}", "asked"))
PROMOTE = """
UPDATE runs_run SET ready_at = clock_timestamp(), slot = placed.slot, turn = coalesce(runs_run.turn, placed.turn)
FROM ({placed}) placed WHERE runs_run.id = placed.id
""".replace("{placed}", PLACED.replace("{next}", NEXT).replace("{since}", "0::bigint"))
PROMOTE = PROMOTE.replace("{freed}", "(SELECT key, NULL::uuid AS id FROM unnest(%s::text[]) AS wanted(key))")
# The next keys after a given one, in order; each needs one step down the index.
KEYS_AFTER = """
WITH RECURSIVE walk AS (
  (SELECT key, 1 AS step FROM runs_run
   WHERE key > %(after)s::text AND status IN {live} ORDER BY key LIMIT 1)
  UNION ALL
  SELECT next.key, walk.step + 1 FROM walk CROSS JOIN LATERAL (
    SELECT key FROM runs_run
    WHERE key > walk.key AND status IN {live} ORDER BY key LIMIT 1) next
  WHERE walk.step < %(limit)s::int
)
SELECT walk.key, EXISTS (SELECT FROM ({next}) next) FROM walk
""".replace("{next}", NEXT.replace("{freed}", "(SELECT walk.key, NULL::uuid AS id)")).replace("{live}", LIVE_SQL)


@dataclass(kw_only=True)
class KeyState:
    """The live runs of a key, for admission: the places taken, and the number (up to its limit) of runs without one."""

    slots: set[int] = field(default_factory=set)
    blocked: int = 0
    queued: int = 0
    first: UUID | None = None

    @property
    def live(self) -> int:
        return len(self.slots) + self.queued

    def place(self, limit: int) -> int | None:
        """The place that a new run may take now, if any. With a limit of 1 it passes no other run, not even one due later."""
        in_front = self.queued if limit == 1 else self.blocked
        if in_front or len(self.slots) >= limit:
            return None
        return min(set(range(1, limit + 1)) - self.slots)


def lock(key: str) -> None:
    """Take a key's lock until the transaction ends."""
    execute(LOCK, [key])


def lock_all(keys: Iterable[str]) -> None:
    """Take the locks of keys until the transaction ends, in their order, so that two such calls cannot block each other."""
    execute(LOCK_ALL, [sorted(set(keys))])


def try_lock(keys: Iterable[str]) -> set[str]:
    """Lock keys until the transaction ends, without waiting; return those that it got."""
    wanted = sorted(set(keys))
    return set(fetch_column(TRY_LOCK, [wanted])) if wanted else set()


def states(limits: Mapping[str, int]) -> dict[str, KeyState]:
    """The state of each key, given its limit. Call it under the keys' locks, in a statement of its own."""
    if not limits:
        return {}
    return dict(fetch_as(_state, STATES, [list(limits), list(limits.values())]))


def _state(*, key: str, slots: list[int], **columns: Any) -> tuple[str, KeyState]:
    return key, KeyState(slots=set(slots), **columns)


def promote(keys: Iterable[str]) -> int:
    """Give the free places of these keys to the runs blocked behind them; return how many. Call it under the keys' locks."""
    wanted, promoted = sorted(set(keys)), 0
    while wanted and (now := execute(PROMOTE, [wanted])):
        promoted += now
    return promoted


def stalled(after: str, limit: int) -> tuple[list[str], str]:
    """Among the next `limit` live keys after a given one, those with a free place and a run that waits for it; and the key to go
    on from, "" after the last. Normally only a key whose limit was raised is one."""
    rows = fetch(KEYS_AFTER, {"after": after, "limit": limit})
    return [key for key, is_stalled in rows if is_stalled], rows[-1][0] if len(rows) == limit else ""
