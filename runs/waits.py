"""What runs wait for: how a wait ends, and how its run goes on.

Whatever ends one locks the run before the wait, changes the wait from `open` by compare-and-set, and queues the run in the
same statement: seeing each other twice is harmless, and nothing is missed by both. A run that has neither a key nor needs a
place is ready at once; the timers line the others up for theirs.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import structlog
from django.db import InterfaceError, OperationalError
from psycopg.errors import QueryCanceled

from agents.run import SIGNAL
from runs.entries import hash_at
from runs.failpoints import failpoint
from runs.models import Wait
from runs.nudge import nudge_dispatcher
from runs.sql import execute, fetch
from runs.wiring import Sought, wiring

log = structlog.get_logger(__name__)

# Parameters that say how many rows there are stand in a query of their own: PostgreSQL would otherwise find a plan for each
# number of them cheaper than one for all, and plan anew every time, which takes longer than to execute it.

# A wait by time alone begins a new causal chain: what happens every so often is no loop. One that is shorter than the rate of
# loops spaces them does not: it would be a way round that rate.
END = """
WITH locked AS MATERIALIZED (
  SELECT run.id AS run_id, wait.id AS wait_id, {event} AS event_id
  FROM {waits} JOIN runs_run run ON run.id = wait.run_id
  WHERE wait.status = 'open' AND run.status = 'waiting' {which}
  FOR NO KEY UPDATE OF run {patience}
), ended AS (
  UPDATE runs_wait SET status = {status}, ended_at = clock_timestamp(), event_id = locked.event_id
  FROM locked WHERE runs_wait.id = locked.wait_id AND runs_wait.status = 'open'
  RETURNING runs_wait.id, runs_wait.run_id,
    runs_wait.kind = 'time' AND runs_wait.due_at - runs_wait.created_at >= %(spacing)s::interval AS is_new
)
UPDATE runs_run SET
  status = 'queued', status_reason = '',
  ready_at = CASE WHEN key IS NULL OR slot IS NOT NULL THEN clock_timestamp() END,
  due_at = CASE WHEN key IS NOT NULL AND slot IS NULL THEN clock_timestamp() END,
  depth = CASE WHEN ended.is_new THEN 0 ELSE depth END,
  chain = CASE WHEN ended.is_new THEN '{}' ELSE chain END
FROM ended WHERE runs_run.id = ended.run_id AND runs_run.status = 'waiting'
RETURNING {told}
"""
# A crash of the server may take away what is found again by the next look: its commit need not be on disk at once.
LAZILY = "set_config('synchronous_commit', 'off', true)"


def _end(
    *,
    waits: str,
    which: str = "",
    event: str = "NULL::uuid",
    status: str = "'done'",
    patience: str = "",
    told: str = "ended.id",
) -> str:
    parts = {"waits": waits, "which": which, "event": event, "status": status, "patience": patience, "told": told}
    statement = END
    for name, part in parts.items():
        statement = statement.replace(f"{{{name}}}", part)
    return statement


# The clock is read once, in a query of its own, so that the index leaves out what is due some day. Nothing is over before
# somebody has looked whether it had come by then. The limit is part of the text, and ending them another statement: for how
# many are due PostgreSQL has a guess that makes it read all runs.
DUE = """
SELECT id FROM runs_wait WHERE status = 'open' AND due_at <= (SELECT clock_timestamp())
  AND (looked_at IS NOT NULL OR kind NOT IN ('event', 'children'))
ORDER BY due_at LIMIT {limit}
"""
THESE = "AND wait.id = ANY((SELECT %(ids)s::bigint[])::bigint[])"
END_DUE = _end(
    waits="runs_wait wait",
    which=THESE,
    status="CASE runs_wait.kind WHEN 'time' THEN 'done' ELSE 'expired' END",
    patience="SKIP LOCKED",
)
END_THESE = _end(waits="runs_wait wait", which=THESE)
END_BY_EVENT = _end(
    waits="""unnest((SELECT %(ids)s::bigint[]), (SELECT %(events)s::uuid[])) AS hit(wait_id, event_id)
    JOIN runs_wait wait ON wait.id = hit.wait_id""",
    event="hit.event_id",
    patience="SKIP LOCKED",
    told=LAZILY,
)
STILL_OPEN = """
SELECT wait.id FROM runs_wait wait JOIN runs_run run ON run.id = wait.run_id
WHERE wait.id = ANY((SELECT %s::bigint[])::bigint[]) AND wait.status = 'open' AND run.status = 'waiting'
"""
# A parent waits for children of which none lives any more. Children that are pruned have finished. They are known by id
# alone: a fork waits for the children of the run it was forked from.
END_WITHOUT_CHILDREN = _end(
    waits="runs_wait wait",
    which="""AND wait.run_id = ANY((SELECT %(parents)s::uuid[])::uuid[]) AND wait.kind = 'children' AND NOT EXISTS (
      SELECT FROM runs_run child WHERE child.id = ANY(wait.children)
      AND child.status IN ('queued', 'running', 'waiting', 'uncertain'))""",
    told=LAZILY,
)
# Of any type, by the least of them: EXISTS may look through all waits that are over.
EVENTS_ARE_AWAITED = "(SELECT min(event_type) FROM runs_wait WHERE status = 'open' AND kind = 'event') IS NOT NULL"
# The shapes of the matches of each type: one step down the index for each, however many wait.
SHAPES = """
SELECT wanted.type, shape.match_shape FROM unnest((SELECT %s::text[])) AS wanted(type) CROSS JOIN LATERAL (
  WITH RECURSIVE walk AS (
    (SELECT match_shape FROM runs_wait
     WHERE status = 'open' AND kind = 'event' AND event_type = wanted.type ORDER BY match_shape LIMIT 1)
    UNION ALL
    SELECT (SELECT match_shape FROM runs_wait
            WHERE status = 'open' AND kind = 'event' AND event_type = wanted.type AND match_shape > walk.match_shape
            ORDER BY match_shape LIMIT 1)
    FROM walk WHERE walk.match_shape IS NOT NULL
  ) SELECT match_shape FROM walk WHERE match_shape IS NOT NULL) shape
"""
# An event may be dispatched after a run's look back took it, when that run waits for the next of its kind.
HITS = """
SELECT wait.id, hit.event_id
FROM unnest((SELECT %s::uuid[]), (SELECT %s::text[]), (SELECT %s::text[]), (SELECT %s::text[])) AS hit(event_id, type, shape, hash)
JOIN runs_wait wait ON wait.status = 'open' AND wait.kind = 'event' AND wait.event_type = hit.type AND wait.match_shape = hit.shape
  AND wait.match_hash = hit.hash
WHERE NOT EXISTS (SELECT FROM runs_wait taken WHERE taken.event_id = hit.event_id AND taken.run_id = wait.run_id)
"""
# Nothing that ends another kind of wait can have come before it.
LOOKED_BACK_FOR = (Wait.Kind.EVENT, Wait.Kind.CHILDREN)
UNLOOKED = """
SELECT wait.id, wait.kind, wait.run_id, wait.event_type, wait.match, run.event_ids[1], run.created_at,
  ARRAY(SELECT event_id FROM runs_wait taken WHERE taken.run_id = wait.run_id AND event_id IS NOT NULL)
FROM runs_wait wait JOIN runs_run run ON run.id = wait.run_id
WHERE wait.status = 'open' AND wait.looked_at IS NULL AND wait.kind IN ('event', 'children')
"""
UNLOOKED_OF = f"{UNLOOKED} AND wait.run_id = %(run)s::uuid"
UNLOOKED_OF_ALL = f"{UNLOOKED} ORDER BY wait.id LIMIT %(limit)s::int"
LOOKED = """
UPDATE runs_wait SET looked_at = clock_timestamp() WHERE id = %s::bigint AND status = 'open' RETURNING {told}
""".replace("{told}", LAZILY)


def end_due(limit: int) -> int:
    """End the waits whose time is over, and queue their runs; how many."""
    due = [id for (id,) in fetch(DUE.replace("{limit}", str(limit)))]
    return _ended(END_DUE, {"ids": due}) if due else 0


def end_these(wait_ids: Sequence[int]) -> int:
    """End waits because what they waited for came; how many were still open."""
    return _ended(END_THESE, {"ids": list(wait_ids)})


def end_by_events(hits: Mapping[int, UUID]) -> set[UUID]:
    """End waits (by id) by the event each waited for, in the caller's transaction. Of runs that somebody has locked nobody
    can tell yet whether they go on waiting: the events that are to be looked at again."""
    if not hits:
        return set()
    ids = sorted(hits)
    _ended(END_BY_EVENT, {"ids": ids, "events": [hits[id] for id in ids]})
    return {hits[id] for (id,) in fetch(STILL_OPEN, [ids])}


def end_without_children(parent_ids: Iterable[UUID]) -> int:
    """End the waits of those parents none of whose awaited children lives any more; how many. They are counted anew."""
    parents = sorted(set(parent_ids))
    return _ended(END_WITHOUT_CHILDREN, {"parents": parents}) if parents else 0


def shapes_of(types: Iterable[str]) -> dict[str, list[str]]:
    """What events of these types are waited for by: type → shapes of matches. Types that nobody waits for are left out."""
    found: dict[str, list[str]] = {}
    for type, shape in fetch(SHAPES, [sorted(set(types))]):
        found.setdefault(type, []).append(shape)
    return found


def hits_of(looked_up: Sequence[tuple[UUID, str, str, str]]) -> dict[int, UUID]:
    """Which open wait is ended by which event, given (event id, type, shape, hash) in the events' order; the first wins."""
    order = {event_id: place for place, (event_id, *_) in enumerate(looked_up)}
    found = fetch(HITS, [list(column) for column in zip(*looked_up, strict=True)]) if looked_up else []
    hits: dict[int, UUID] = {}
    for wait_id, event_id in sorted(found, key=lambda hit: order[hit[1]]):
        hits.setdefault(wait_id, event_id)
    return hits


def look_back(run_id: UUID | None = None, limit: int = 100) -> int:
    """Look for what came before a wait was there, for waits whose look is still owed; how many waits it ended.

    The wait is committed by now, and this reads a newer snapshot: an event either was there, and is found here, or is
    dispatched later, and finds the wait. The same goes for the end of a child.
    """
    owed = fetch(UNLOOKED_OF, {"run": run_id}) if run_id else fetch(UNLOOKED_OF_ALL, {"limit": limit})
    return sum(_look_back(*row) for row in owed)


def _look_back(wait_id: int, kind: str, owner: UUID, type: str, match: str | None, *origin: Any) -> int:
    failpoint("before_look_back")
    if kind == Wait.Kind.CHILDREN:
        has_come = end_without_children([owner]) > 0
    else:
        event_id = _find(owner, type, json.loads(match or "{}"), *origin)
        has_come = event_id is not None
        if event_id and end_by_events({wait_id: event_id}):
            return 0  # somebody has locked the run: this look is still owed
    if not has_come:
        execute(LOOKED, [wait_id])
    failpoint("after_look_back")
    return int(has_come)


def _find(
    owner: UUID, type: str, match: Mapping[str, Any], first_event: UUID | None, since: datetime, taken: Sequence[UUID]
) -> UUID | None:
    subject = str(owner) if type == SIGNAL else ""
    try:
        return wiring.find_event(
            Sought(
                type=type, match=match, subject=subject, run_id=owner, after_event=first_event, since=since, but=taken
            )
        )
    except Exception as error:
        if isinstance(error, (OperationalError, InterfaceError)) and not isinstance(error.__cause__, QueryCanceled):
            raise
        # The dispatcher would try it for ever, and do nothing else.
        log.exception("wait.not_looked_back", run=str(owner), type=type)
        return None


def lookups(shapes: Sequence[str], data: Any) -> list[tuple[str, str]]:
    """What an event is looked up by, given the shapes of its type: (shape, hash) of what its data has there."""
    hashes = ((shape, hash_at(json.loads(shape), data)) for shape in shapes)
    return [(shape, hash) for shape, hash in hashes if hash is not None]


def _ended(statement: str, parameters: dict[str, Any]) -> int:
    ended = len(fetch(statement, {**parameters, "spacing": wiring.loop_spacing()}))
    if ended:
        nudge_dispatcher()
    return ended
