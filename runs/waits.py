"""Waits of runs: end a wait, and queue its run.

Every end of a wait locks the run before the wait, changes the wait from `open` by compare-and-set, and queues the run in the same
statement. So two ends of one wait are harmless, and none is missed. A run that needs no place of a key is ready at once; the
timers line up the others for a place.
"""

import json
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import structlog
from django.db import InterfaceError, OperationalError, transaction
from psycopg.errors import LockNotAvailable, QueryCanceled

from agents.journal.canonical import hash_in, paths_in, source_in
from agents.kernel.backoff import backoff
from agents.kernel.reserved_types import RESERVED, SIGNAL
from runs.db.nudge import nudge_dispatcher
from runs.db.sql import execute, fetch, fetch_as
from runs.failpoints import failpoint
from runs.models import Wait
from runs.ports import Searched, Sought, ports
from runs.states import LIVE_SQL

log = structlog.get_logger(__name__)

# Array parameters go in a sub-SELECT so that PostgreSQL uses a generic plan instead of re-planning for every array length.

# A wait for a time begins a new causal chain, because periodic work is no loop. One shorter than `spacing` does not: it would
# bypass the rate limit of loops.
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
), queued AS (
  UPDATE runs_run SET
    status = 'queued', status_reason = '',
    ready_at = CASE WHEN key IS NULL OR slot IS NOT NULL THEN clock_timestamp() END,
    due_at = CASE WHEN key IS NOT NULL AND slot IS NULL THEN clock_timestamp() END,
    depth = CASE WHEN ended.is_new THEN 0 ELSE depth END,
    chain = CASE WHEN ended.is_new THEN '{}' ELSE chain END
  FROM ended WHERE runs_run.id = ended.run_id AND runs_run.status = 'waiting'
  RETURNING queue, ready_at
)
SELECT (SELECT count(*) FROM queued), ARRAY(SELECT queue FROM queued WHERE ready_at IS NOT NULL), {told}
"""
# The commit need not be on disk at once: if a crash of the server loses it, the next look finds the same again.
LAZILY = "set_config('synchronous_commit', 'off', true)"


def _end(
    *,
    waits: str,
    which: str = "",
    event: str = "NULL::uuid",
    status: str = "'done'",
    patience: str = "",
    told: str = "NULL",
) -> str:
    parts = {"waits": waits, "which": which, "event": event, "status": status, "patience": patience, "told": told}
    statement = END
    for name, part in parts.items():
        statement = statement.replace(f"{{{name}}}", part)
    return statement


# The clock is read once, in a sub-SELECT, so that the index leaves out later deadlines. A wait for an event or children does not
# expire before its look back. The ids are an array, and the limit is in the
# text: PostgreSQL's estimate of due waits would make it read all runs.
DUE = """
SELECT id FROM runs_wait WHERE status = 'open' AND due_at <= (SELECT clock_timestamp())
  AND (looked_at IS NOT NULL OR kind NOT IN ('event', 'children'))
ORDER BY due_at LIMIT {limit}
"""
THESE = "AND wait.id = ANY((SELECT %(ids)s::bigint[])::bigint[])"
END_DUE = _end(
    waits="runs_wait wait",
    which=f"AND wait.id = ANY(ARRAY({DUE}))",
    status="CASE WHEN runs_wait.kind IN ('time', 'budget') THEN 'done' ELSE 'expired' END",
    patience="SKIP LOCKED",
)
END_THESE = _end(waits="runs_wait wait", which=THESE)
END_UNLESS_LOCKED = _end(waits="runs_wait wait", which=THESE, patience="SKIP LOCKED")
EXPIRE_UNLESS_LOCKED = _end(waits="runs_wait wait", which=THESE, status="'expired'", patience="SKIP LOCKED")
# Read only if some have not been ended.
STILL_OPEN = """
ARRAY(
  SELECT wait.id FROM runs_wait wait JOIN runs_run run ON run.id = wait.run_id
  WHERE (SELECT count(*) FROM locked) < cardinality((SELECT %(ids)s::bigint[]))
    AND wait.id = ANY((SELECT %(ids)s::bigint[])::bigint[]) AND wait.status = 'open' AND run.status = 'waiting'
    AND wait.id <> ALL (ARRAY(SELECT wait_id FROM locked)))
"""
END_BY_EVENT = _end(
    waits="""unnest((SELECT %(ids)s::bigint[]), (SELECT %(events)s::uuid[])) AS hit(wait_id, event_id)
    JOIN runs_wait wait ON wait.id = hit.wait_id""",
    event="hit.event_id",
    patience="SKIP LOCKED",
    told=f"{LAZILY}, {STILL_OPEN}",
)
# Waits for children that have all ended. Pruned children count as finished. Children are found by their ids, because a fork
# waits for the children of its origin.
END_WITHOUT_CHILDREN = _end(
    waits="runs_wait wait",
    which="""AND wait.run_id = ANY((SELECT %(parents)s::uuid[])::uuid[]) AND wait.kind = 'children' AND NOT EXISTS (
      SELECT FROM runs_run child WHERE child.id = ANY(wait.children)
      AND child.status IN {live})""".replace("{live}", LIVE_SQL),
    told=LAZILY,
)
# min() uses the index; EXISTS could scan finished waits.
EVENTS_ARE_AWAITED = "(SELECT min(event_type) FROM runs_wait WHERE status = 'open' AND kind = 'event') IS NOT NULL"
# The shapes of the matches of each type: one step down the index per shape, even if a million runs wait.
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
# A look back may have given the event to an earlier wait of the run, which now waits for the next one: NOT EXISTS leaves it out.
# OFFSET 0 makes it a lookup by run; by event it would read every wait that the event has ended.
HITS = """
SELECT found.id, hit.event_id
FROM unnest((SELECT %s::uuid[]), (SELECT %s::text[]), (SELECT %s::text[]), (SELECT %s::text[])) AS hit(event_id, type, shape, hash)
CROSS JOIN LATERAL (
  SELECT wait.id FROM runs_wait wait
  WHERE wait.status = 'open' AND wait.kind = 'event' AND wait.event_type = hit.type AND wait.match_shape = hit.shape
    AND wait.match_hash = hit.hash
    AND NOT EXISTS (
      SELECT FROM runs_wait taken
      WHERE taken.run_id = wait.run_id AND taken.event_id IS NOT DISTINCT FROM hit.event_id OFFSET 0)
  LIMIT {most}) found
LIMIT {most}
"""
# The waits for sessions that no live run holds.
FOR_FREE_SESSION = """
FROM runs_wait wait LEFT JOIN agents_session session ON session.name = wait.asked->>'session'
LEFT JOIN runs_run holder ON holder.id = session.run_id AND holder.status IN {live}
WHERE wait.status = 'open' AND wait.kind = 'session' AND holder.id IS NULL
""".replace("{live}", LIVE_SQL)
# Other kinds of waits cannot end before they are written.
LOOKED_BACK_FOR = (Wait.Kind.EVENT, Wait.Kind.CHILDREN)
UNLOOKED = """
SELECT wait.id, wait.kind, wait.run_id, wait.event_type AS type, wait.match, wait.match_shape AS shape, wait.looked_to,
  wait.look_failures AS failures, run.event_ids[1] AS first_event, run.root_id AS root, run.created_at AS since,
  ARRAY(SELECT event_id FROM runs_wait taken WHERE taken.run_id = wait.run_id AND event_id IS NOT NULL) AS taken
FROM runs_wait wait JOIN runs_run run ON run.id = wait.run_id
WHERE wait.status = 'open' AND wait.looked_at IS NULL AND wait.kind IN ('event', 'children')
"""
UNLOOKED_OF = f"{UNLOOKED} AND wait.run_id = %(run)s::uuid"
# Repeated looks come last, so that a long search does not delay the others.
UNLOOKED_OF_ALL = f"""{UNLOOKED} AND (wait.look_after IS NULL OR wait.look_after <= clock_timestamp())
ORDER BY wait.look_after NULLS FIRST, wait.id LIMIT %(limit)s::int
"""
LOOKED = """
UPDATE runs_wait SET looked_at = clock_timestamp(), look_failures = 0 WHERE id = {open} RETURNING {told}
"""
# The look is not finished; the next one goes on from where it stopped.
STILL_OWED = """
UPDATE runs_wait SET looked_to = %(looked_to)s::bigint, look_failures = %(failures)s::int, look_error = %(error)s::text,
  look_after = clock_timestamp() + %(pause)s::interval
WHERE id = {open}
"""
OPEN = "(SELECT id FROM runs_wait WHERE id = %(id)s::bigint AND status = 'open' FOR NO KEY UPDATE SKIP LOCKED)"
LOOKED = LOOKED.replace("{open}", OPEN).replace("{told}", LAZILY)
STILL_OWED = STILL_OWED.replace("{open}", OPEN)
SHORT_PATIENCE = "SET LOCAL statement_timeout = '1s'"
PAGE = 1000  # most events that one statement of a search reads
BUDGET = 0.25  # seconds of looking back at a time, because new events wait meanwhile
FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=2), timedelta(minutes=5)
OUT_OF_PATIENCE = (QueryCanceled, LockNotAvailable)


@dataclass(frozen=True, kw_only=True)
class Woken:
    """How many runs go on, or may do so, and how many of these are known to be ready, by queue."""

    runs: int = 0
    ready: Counter[str] = field(default_factory=Counter)

    @property
    def others(self) -> int:
        return self.runs - self.ready.total()


def end_due(limit: int) -> Woken:
    """End the waits that are due, and queue their runs."""
    return _woken(END_DUE.replace("{limit}", str(limit)), {})


def end_these(wait_ids: Sequence[int]) -> int:
    """End waits as done; return how many were still open."""
    return _woken(END_THESE, {"ids": list(wait_ids)}).runs


def end_unless_locked(wait_ids: Sequence[int]) -> int:
    """Like `end_these`, of runs that are not locked elsewhere."""
    return _woken(END_UNLESS_LOCKED, {"ids": list(wait_ids)}).runs


def expire_unless_locked(wait_ids: Sequence[int]) -> int:
    """End waits as expired, of runs that are not locked elsewhere; return how many."""
    return _woken(EXPIRE_UNLESS_LOCKED, {"ids": list(wait_ids)}).runs


def end_by_events(hits: Mapping[int, UUID]) -> tuple[Woken, set[UUID]]:
    """End waits (wait id → event id) in the caller's transaction. Also returns the events to look at again, because their runs are
    locked elsewhere."""
    if not hits:
        return Woken(), set()
    ids = sorted(hits)
    [(runs, ready, _, still_open)] = _fetch(END_BY_EVENT, {"ids": ids, "events": [hits[wait] for wait in ids]})
    if runs:
        nudge_dispatcher()
    return Woken(runs=runs, ready=Counter(ready)), {hits[wait] for wait in still_open}


def end_without_children(parent_ids: Iterable[UUID]) -> int:
    """End the waits of parents whose awaited children have all finished; return how many."""
    parents = sorted(set(parent_ids))
    return _woken(END_WITHOUT_CHILDREN, {"parents": parents}).runs if parents else 0


def shapes_of(types: Iterable[str]) -> dict[str, list[str]]:
    """The shapes of the open waits for events of these types, by type; types without a wait are left out."""
    found: dict[str, list[str]] = {}
    for event_type, shape in fetch(SHAPES, [sorted(set(types))]):
        found.setdefault(event_type, []).append(shape)
    return found


def hits_of(looked_up: Sequence[tuple[UUID, str, str, str]], most: int) -> tuple[dict[int, UUID], bool]:
    """The open waits (wait id → event id) that events end, given (event id, type, shape, hash) in the order of the events; the
    first event wins. Returns at most `most`, and whether these are all."""
    order = {event_id: place for place, (event_id, *_) in enumerate(looked_up)}
    columns = [list(column) for column in zip(*looked_up, strict=True)]
    found = fetch(HITS.replace("{most}", str(most + 1)), columns) if looked_up else []
    hits: dict[int, UUID] = {}
    for wait_id, event_id in sorted(found, key=lambda hit: order[hit[1]])[:most]:
        hits.setdefault(wait_id, event_id)
    return hits, len(found) <= most


@dataclass(frozen=True, kw_only=True)
class Owed:
    """A wait whose look back is not finished."""

    id: int
    kind: str
    run_id: UUID
    type: str
    match: str | None
    shape: str
    looked_to: int | None
    failures: int
    first_event: UUID | None
    root: UUID
    since: datetime
    taken: Sequence[UUID]


def look_back(run_id: UUID | None = None, limit: int = 100) -> int:
    """Search for events, and ends of children, that came before a wait was committed: for the wait of a run, or for all waits
    that owe such a look, within BUDGET. Returns how many waits it ended.

    The wait is committed, and this reads a newer snapshot: an event is found here, or it is dispatched later and finds the
    wait. The same is true for the end of a child. A look that fails or takes too long stays owed: it is repeated with a
    growing pause, from where it stopped, and until then the wait does not expire.
    """
    until = time.monotonic() + BUDGET
    statement = UNLOOKED_OF if run_id else UNLOOKED_OF_ALL
    owed = fetch_as(Owed, statement, {"run": run_id} if run_id else {"limit": limit})
    ended = 0
    for number, wait in enumerate(owed):
        if number and time.monotonic() >= until:
            break
        ended += _look_back(wait, until, is_dispatcher=run_id is None)
    return ended


def _look_back(wait: Owed, until: float, is_dispatcher: bool) -> int:
    failpoint("before_look_back")
    search = Search(wait, is_dispatcher)
    try:
        has_come = search.children() if wait.kind == Wait.Kind.CHILDREN else search.events(until)
    except Exception as error:
        if isinstance(error, (OperationalError, InterfaceError)) and not isinstance(error.__cause__, OUT_OF_PATIENCE):
            raise
        log.exception("wait.not_looked_back", run=str(wait.run_id), type=wait.type)
        search.failed(error)
        return 0
    failpoint("after_look_back")
    return int(has_come)


class Search:
    """A look back for a wait, in pages. A failed page is read again in halves; earlier pages are not read again."""

    def __init__(self, wait: Owed, is_dispatcher: bool) -> None:
        self.wait = wait
        self.is_dispatcher = is_dispatcher
        self.looked_to = wait.looked_to

    def children(self) -> bool:
        has_come = end_without_children([self.wait.run_id]) > 0
        if not has_come:
            execute(LOOKED, {"id": self.wait.id})
        return has_come

    def events(self, until: float) -> bool:
        """Search until the time is over; return whether it ended the wait."""
        most = max(1, PAGE >> min(self.wait.failures, 10))
        while True:
            found = self.page(most)
            if found.event_id:
                # If the run is locked elsewhere, this look is still owed.
                _, unheard = end_by_events({self.wait.id: found.event_id})
                return not unheard
            if found.searched_to is None:
                execute(LOOKED, {"id": self.wait.id})
                return False
            self.looked_to, most = found.searched_to, min(most * 2, PAGE)
            if time.monotonic() >= until:
                self.still_owed()
                return False

    def page(self, most: int) -> Searched:
        wait = self.wait
        sought = Sought(
            type=wait.type,
            match=json.loads(wait.match or "{}"),
            source=RESERVED.get(wait.type, source_in(wait.shape)),
            subject=str(wait.run_id) if wait.type == SIGNAL else "",
            run_id=wait.run_id,
            after_event=wait.first_event,
            since=wait.since,
            but=wait.taken,
            root=wait.root,
            searched_to=self.looked_to,
            most=most,
        )
        if not self.is_dispatcher:
            return ports.find_event(sought)
        with transaction.atomic():
            execute(SHORT_PATIENCE)
            return ports.find_event(sought)

    def failed(self, error: Exception) -> None:
        failures = 1 if self.looked_to != self.wait.looked_to else min(self.wait.failures + 1, 1000)
        pause = backoff(FIRST_PAUSE, LONGEST_PAUSE, failures)
        self.still_owed(failures, f"{type(error).__name__}: {error}"[:500], pause)

    def still_owed(self, failures: int = 0, error: str = "", pause: timedelta = timedelta()) -> None:
        how = {"looked_to": self.looked_to, "failures": failures, "error": error, "pause": pause}
        execute(STILL_OWED, {"id": self.wait.id, **how})


def may_end_waits(type: str, source: str) -> bool:
    """May an event of this type from this source end a wait? Of a reserved type, only events of its built-in source: another
    version may have recorded forged ones."""
    return RESERVED.get(type, source) == source


def paths_of(shapes: Iterable[str]) -> set[str]:
    """The paths of the data that `lookups` reads for these shapes."""
    return {path for shape in shapes for path in paths_in(shape)}


def lookups(shapes: Sequence[str], source: str, data: Any) -> list[tuple[str, str]]:
    """The (shape, hash) pairs by which an event finds waits, given the shapes of its type."""
    hashes = ((shape, hash_in(shape, source, data)) for shape in shapes)
    return [(shape, found) for shape, found in hashes if found is not None]


def _woken(statement: str, parameters: dict[str, Any]) -> Woken:
    [(runs, ready, *_)] = _fetch(statement, parameters)
    if runs:
        nudge_dispatcher()
    return Woken(runs=runs, ready=Counter(ready))


def _fetch(statement: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
    return fetch(statement, {**parameters, "spacing": ports.loop_spacing()})
