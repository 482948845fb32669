"""Read events to dispatch. Nothing here holds a lock or a transaction: reading and matching a large payload takes seconds, and
PostgreSQL ends sessions that are idle in a transaction for that long."""

import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from runs.db.ready_runs import HINTED, SLOW
from runs.db.sql import fetch, fetch_as
from runs.db.trip import Answer, Trip
from runs.models import NIL
from runs.waits import EVENTS_ARE_AWAITED
from triggers.matching.backfill_terms import ARE_UNDERWAY, Terms, terms_of
from triggers.matching.payload import SMALL
from triggers.models import Event

NIL_REPLAY = UUID(NIL)
BATCH_BYTES = 4 * 2**20  # of payloads; a larger event is a batch of its own
# The size of compressed data beside its stored size, which alone is known without unpacking it; hostile data has up to 91 times.
UNPACKED = 16

Reports = Sequence[Mapping[str, Any]]  # as stored
Identity = UUID | int  # the id of an event that is dispatched for the first time, or of a redispatch

COLUMNS = """
event.id AS event_id, coalesce(source.slug, '') AS source, event.type, event.subject, coalesce(event.time, event.received_at) AS time,
       event.received_at, event.target_id, event.root_id, event.depth, event.chain, event.is_tainted,
       greatest(octet_length(event.body), pg_column_size(event.data) * CASE
         WHEN event.body IS NULL AND pg_column_compression(event.data) IS NOT NULL THEN {unpacked} ELSE 1 END, 0) AS bytes,
       (SELECT {awaited}) AS may_be_awaited, (SELECT {backfilled}) AS may_be_backfilled,
       coalesce(source.kind = 'table', false) AS is_change,
       CASE WHEN source.kind = 'table' AND event.cause_run_id IS NOT NULL
         THEN (SELECT run.agent FROM runs_run run WHERE run.id = event.cause_run_id) END AS changed_by,
       CASE WHEN event.target_id IS NOT NULL AND event.type = 'manual.fired' THEN event.headers->>'reports' END AS reports
"""
for name, part in {"awaited": EVENTS_ARE_AWAITED, "backfilled": ARE_UNDERWAY, "unpacked": str(UNPACKED)}.items():
    COLUMNS = COLUMNS.replace(f"{{{name}}}", part)
READ = """
SELECT {columns}, item.seq, item.redispatch_id, item.trigger_id, item.replay_id,
       CASE WHEN item.redispatch_id IS NOT NULL
         THEN (SELECT replay.priority FROM triggers_replay replay WHERE replay.id = item.replay_id) END AS priority
FROM ({items}) item
JOIN triggers_event event ON event.id = item.event_id
LEFT JOIN triggers_source source ON source.id = event.source_id
ORDER BY item.seq
""".replace("{columns}", COLUMNS.strip())
# Without redispatches, if there are none: of a few events, READ takes longer to begin than to execute. One row at least.
NEW = """
SELECT redispatched.are_there AS has_redispatches, {columns}, event.seq
FROM (SELECT EXISTS (SELECT FROM triggers_redispatch WHERE dispatched_at IS NULL) AS are_there) redispatched
LEFT JOIN (
  SELECT * FROM triggers_event WHERE dispatched_at IS NULL AND seq >= %(from)s::bigint AND id <> ALL(%(but_events)s::uuid[])
  ORDER BY seq LIMIT %(limit)s::int) event ON NOT redispatched.are_there
LEFT JOIN triggers_source source ON source.id = event.source_id
ORDER BY event.seq
""".replace("{columns}", COLUMNS.strip())
# Redispatches take at most half of a batch, triggers in turn, so that new events do not wait behind them.
NEXT = READ.replace(
    "{items}",
    """
  (SELECT seq, id AS event_id, NULL::bigint AS redispatch_id, NULL::uuid AS trigger_id, %(nil)s::uuid AS replay_id
   FROM triggers_event WHERE dispatched_at IS NULL AND seq >= %(from)s::bigint AND id <> ALL(%(but_events)s::uuid[])
   ORDER BY seq LIMIT %(limit)s::int)
  UNION ALL
  (WITH RECURSIVE asking AS (
     (SELECT trigger_id FROM triggers_redispatch WHERE dispatched_at IS NULL AND trigger_id IS NOT NULL ORDER BY trigger_id LIMIT 1)
     UNION ALL
     SELECT (SELECT trigger_id FROM triggers_redispatch
             WHERE dispatched_at IS NULL AND trigger_id > asking.trigger_id ORDER BY trigger_id LIMIT 1)
     FROM asking WHERE asking.trigger_id IS NOT NULL)
   SELECT seq, event_id, id, trigger_id, replay_id FROM (
     SELECT again.*, row_number() OVER (PARTITION BY asking.trigger_id ORDER BY again.seq) AS turn
     FROM asking CROSS JOIN LATERAL (
       SELECT seq, event_id, id, trigger_id, replay_id FROM triggers_redispatch
       WHERE dispatched_at IS NULL AND trigger_id = asking.trigger_id AND id <> ALL(%(but_redispatches)s::bigint[])
       ORDER BY seq LIMIT %(half)s::int) again
     UNION ALL
     (SELECT seq, event_id, id, trigger_id, replay_id, row_number() OVER (ORDER BY seq) FROM (
        SELECT seq, event_id, id, trigger_id, replay_id FROM triggers_redispatch
        WHERE dispatched_at IS NULL AND trigger_id IS NULL AND id <> ALL(%(but_redispatches)s::bigint[])
        ORDER BY seq LIMIT %(half)s::int) untargeted)) in_turn
   ORDER BY turn, seq LIMIT %(half)s::int)
  ORDER BY seq LIMIT %(limit)s::int
""",
)
# One step down the index for each source with undispatched events.
NEXT_BUT_CHANGES = READ.replace(
    "{items}",
    """
  WITH RECURSIVE waiting AS (
    (SELECT source_id AS id FROM triggers_event WHERE dispatched_at IS NULL ORDER BY source_id LIMIT 1)
    UNION ALL
    SELECT (SELECT source_id FROM triggers_event WHERE dispatched_at IS NULL AND source_id > waiting.id ORDER BY source_id LIMIT 1)
    FROM waiting WHERE waiting.id IS NOT NULL)
  SELECT first.seq, first.id AS event_id, NULL::bigint AS redispatch_id, NULL::uuid AS trigger_id, %(nil)s::uuid AS replay_id
  FROM waiting JOIN triggers_source other ON other.id = waiting.id AND other.kind <> 'table'
  CROSS JOIN LATERAL (
    SELECT seq, id FROM triggers_event
    WHERE dispatched_at IS NULL AND source_id = waiting.id AND id <> ALL(%(but_events)s::uuid[])
    ORDER BY seq LIMIT %(limit)s::int) first
  ORDER BY seq LIMIT %(limit)s::int
""",
)
THESE = READ.replace(
    "{items}",
    """
  SELECT seq, id AS event_id, NULL::bigint AS redispatch_id, NULL::uuid AS trigger_id, %(nil)s::uuid AS replay_id
  FROM triggers_event WHERE id = ANY(%(events)s::uuid[]) AND dispatched_at IS NULL
  UNION ALL
  SELECT seq, event_id, id, trigger_id, replay_id
  FROM triggers_redispatch WHERE id = ANY(%(redispatches)s::bigint[]) AND dispatched_at IS NULL
""",
)
# The array in a sub-SELECT: one plan for any number of events.
DATA = "SELECT id, data FROM triggers_event WHERE id = ANY((SELECT %s::uuid[])::uuid[])"
# Strict: names of objects only, as in Python; lax paths look into lists.
FIELDS = """
SELECT event.id, asked.path, value::text
FROM triggers_event event CROSS JOIN unnest(%s::text[], %s::jsonpath[]) AS asked(path, names),
LATERAL jsonb_path_query_first(event.data, asked.names, silent => true) AS value
WHERE event.id = ANY(%s::uuid[]) AND jsonb_typeof(value) NOT IN ('object', 'array')
"""


@dataclass(frozen=True, kw_only=True)
class Item:
    """An event to dispatch, for the first time or again."""

    event_id: UUID
    source: str
    type: str
    subject: str
    time: datetime
    received_at: datetime | None = None  # None: the event is only used in a trial
    target_id: UUID | None
    root_id: UUID
    depth: int
    chain: tuple[str, ...] = ()
    is_tainted: bool = False
    redispatch_id: int | None = None
    trigger_id: UUID | None = None
    replay_id: UUID = NIL_REPLAY
    bytes: int = 0
    may_be_awaited: bool = True  # some run waited for an event when this was read
    may_be_backfilled: bool = False  # some backfill had open ticks when this was read
    seq: int = 0
    backfill: Terms | None = None
    priority: int | None = None  # the priority of its replay
    is_change: bool = False  # is it a change of a watched table?
    changed_by: str | None = None  # the agent whose run has changed a watched table
    reports: Reports = field(default=(), compare=False)  # that a person asked for when it fired the trigger

    @property
    def is_resumption(self) -> bool:
        return self.redispatch_id is not None

    @property
    def is_large(self) -> bool:
        """Whether the event's payload may be too large to be read and parsed between other events."""
        return self.bytes > SMALL

    @property
    def identity(self) -> Identity:
        return self.event_id if self.redispatch_id is None else self.redispatch_id


@dataclass
class First:
    """The lowest `seq` of undispatched events a moment ago; None if reading them is fast.

    While an old snapshot is open, the index keeps entries of events that were dispatched since, and each read steps over
    them. This is only a hint: the first read of each second starts from the beginning, and so does a read that finds nothing.
    So an event that is committed after later ones waits at most a second."""

    slow: float = SLOW
    seq: int | None = None
    until: float = 0.0
    ahead: "Ahead | None" = None

    def hint(self) -> int | None:
        return self.seq if time.monotonic() < self.until else None

    def read(self, seq: int | None, seconds: float) -> None:
        self.seq, self.until = (seq if seconds >= self.slow else None), time.monotonic() + HINTED


@dataclass(frozen=True)
class Ahead:
    """What was asked for in an earlier round trip, with this limit."""

    limit: int
    answer: Answer
    began: float


first = First()


def read_items(limit: int, but: Iterable[Identity] = ()) -> list[Item]:
    """The next events to dispatch, except `but`, in `seq` order: at most `limit` and BATCH_BYTES, but at least one."""
    events, redispatches = _apart(but)
    parameters = {"limit": limit, "half": max(limit // 2, 1), "but_events": events, "but_redispatches": redispatches}
    hint = first.hint()
    return fitting((hint and _read_next({**parameters, "from": hint})) or _read_first(parameters))


@contextmanager
def reading_ahead(limit: int) -> Iterator[Callable[[Trip], None]]:
    """Inside the block, `read_items` finds what was read by a round trip to which the function was given, if it wants the same."""

    def ask(trip: Trip) -> None:
        if first.hint() is None:
            answer = trip.add(NEW, {"from": 0, "but_events": [], "limit": limit}, _new_item)
            first.ahead = Ahead(limit, answer, time.monotonic())

    try:
        yield ask
    finally:
        first.ahead = None


def read_items_but_changes(limit: int, but: Iterable[Identity] = ()) -> list[Item]:
    """The next events that are no changes of watched tables, except `but`, in `seq` order and as many as `read_items` would read."""
    events, _ = _apart(but)
    return fitting(_read(NEXT_BUT_CHANGES, {"limit": limit, "but_events": events}))


def _read_first(parameters: dict[str, Any]) -> list[Item]:
    """Read from the beginning."""
    ahead, first.ahead = first.ahead, None
    if ahead and ahead.answer.has_come and ahead.limit == parameters["limit"] and not parameters["but_events"]:
        began, items = ahead.began, _items(ahead.answer.rows(), parameters)
    else:
        began, items = time.monotonic(), _read_next({**parameters, "from": 0})
    # Events that are left out now may be read again later.
    if not parameters["but_events"]:
        first.read(min((item.seq for item in items if not item.is_resumption), default=None), time.monotonic() - began)
    return items


def _read_next(parameters: dict[str, Any]) -> list[Item]:
    """The next events, and what is to be dispatched again."""
    return _items(fetch_as(_new_item, NEW, parameters), parameters)


def _items(rows: list[tuple[bool, Item | None]], parameters: dict[str, Any]) -> list[Item]:
    has_redispatches = rows[0][0]
    return _read(NEXT, parameters) if has_redispatches else with_backfills([item for _, item in rows if item])


def read_these(identities: Iterable[Identity]) -> list[Item]:
    """The items among these that are not dispatched yet, in `seq` order."""
    events, redispatches = _apart(identities)
    return _read(THESE, {"events": events, "redispatches": redispatches})


def _apart(identities: Iterable[Identity]) -> tuple[list[Identity], list[Identity]]:
    wanted = list(identities)
    return [one for one in wanted if isinstance(one, UUID)], [one for one in wanted if isinstance(one, int)]


def _read(statement: str, parameters: dict[str, Any]) -> list[Item]:
    return with_backfills(fetch_as(_item, statement, {**parameters, "nil": NIL_REPLAY}))


def _new_item(*, has_redispatches: bool, event_id: UUID | None, **columns: Any) -> tuple[bool, Item | None]:
    return has_redispatches, None if event_id is None else _item(event_id=event_id, **columns)


def _item(*, chain: list[str], reports: str | None, **columns: Any) -> Item:
    item = Item(chain=tuple(chain), **columns)
    # A replay is another run, which no one asked a report of.
    return replace(item, reports=json.loads(reports)) if reports and item.replay_id == NIL_REPLAY else item


def fitting(items: list[Item]) -> list[Item]:
    total = 0
    for count, item in enumerate(items):
        total += item.bytes
        if total > BATCH_BYTES:
            return items[: max(count, 1)]
    return items


def with_backfills(items: list[Item]) -> list[Item]:
    """Add the terms of backfills to their ticks. Backfills are only read if an event may be such a tick."""
    ticks = [item for item in items if item.source == "schedule" and item.replay_id == NIL_REPLAY]
    terms = terms_of([item.event_id for item in ticks if item.may_be_backfilled])
    return [replace(item, backfill=terms[item.event_id]) if item.event_id in terms else item for item in items]


def read_data(event_ids: set[UUID]) -> dict[UUID, Any]:
    if not event_ids:
        return {}
    return {id: None if data is None else json.loads(data) for id, data in fetch(DATA, [list(event_ids)])}


def read_fields(event_ids: set[UUID], paths: Collection[str]) -> dict[UUID, Any]:
    """The data of large events, as far as these paths lead to texts, numbers, true, false or null. PostgreSQL reads it: parsing it
    here would hold up other events."""
    asked = {path: _as_jsonpath(path) for path in paths if "\0" not in path}
    found: dict[UUID, Any] = {}
    if not event_ids or not asked:
        return found
    for event_id, path, value in fetch(FIELDS, [list(asked), list(asked.values()), list(event_ids)]):
        *outer, last = path.split(".")
        within = found.setdefault(event_id, {})
        for name in outer:
            within = within.setdefault(name, {})
        within[last] = json.loads(value)
    return found


def _as_jsonpath(path: str) -> str:
    return "strict $" + "".join(f".{json.dumps(name)}" for name in path.split("."))


def item_of(event: Event) -> Item:
    """An event as for its first dispatch."""
    return Item(
        event_id=event.pk,
        source=event.source.slug,
        type=event.type,
        subject=event.subject,
        time=event.time or event.received_at,
        received_at=event.received_at,
        target_id=event.target_id,
        root_id=event.root_id,
        depth=event.depth,
        chain=tuple(event.chain),
        is_tainted=event.is_tainted,
    )
