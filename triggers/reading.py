import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from agents import Event
from agents.ids import TIME_PREFIX
from runs.sql import fetch
from runs.wiring import Sought

READ = """
SELECT event.id, event.type, source.slug, event.subject, coalesce(event.time, event.received_at), event.data
FROM triggers_event event JOIN triggers_source source ON source.id = event.source_id
WHERE event.id = ANY(%s::uuid[]) ORDER BY event.seq
"""
# One that has lost its payload says nothing any more. Two looks, each by its own index: the undispatched ones are few,
# the others are entered at dispatch. Ids are ordered by the clocks of the processes that accepted them, so that the first
# one is five minutes early; `seq` is exact.
FIND = """
SELECT event.id FROM (
  SELECT id, seq, data, subject, received_at FROM triggers_event
  WHERE type = %(type)s::text AND dispatched_at IS NOT NULL AND id >= %(first)s::uuid AND payload_removed_at IS NULL
    AND (%(match)s::jsonb IS NULL OR data @> %(match)s::jsonb)
  UNION ALL
  SELECT id, seq, data, subject, received_at FROM triggers_event
  WHERE type = %(type)s::text AND dispatched_at IS NULL AND (%(match)s::jsonb IS NULL OR data @> %(match)s::jsonb)
) event
WHERE CASE WHEN %(after)s::uuid IS NULL THEN event.received_at >= %(since)s::timestamptz
           ELSE event.seq > (SELECT seq FROM triggers_event WHERE id = %(after)s::uuid) END
  AND event.id <> ALL (%(but)s::uuid[])
ORDER BY event.seq LIMIT 1
"""
FIND_BY_SUBJECT = """
SELECT id FROM triggers_event
WHERE subject = %(subject)s::text AND subject <> '' AND type = %(type)s::text AND payload_removed_at IS NULL
  AND (%(match)s::jsonb IS NULL OR data @> %(match)s::jsonb) AND id <> ALL (%(but)s::uuid[])
ORDER BY seq LIMIT 1
"""
EARLY = 5 * 60 * 1000  # milliseconds


def read_events(event_ids: Sequence[UUID]) -> list[Event]:
    """Events as agents see them, in the order of arrival."""
    return [
        Event(
            id=id, type=type, source=source, subject=subject, time=at, data=None if data is None else json.loads(data)
        )
        for id, type, source, subject, at, data in fetch(READ, [list(event_ids)])
    ]


def find_event(sought: Sought) -> UUID | None:
    """The first event that a run could be waiting for, dispatched or not."""
    parameters = {
        "type": sought.type,
        "subject": sought.subject,
        "match": Jsonb(_nested(sought.match)) if sought.match else None,
        "first": _earlier(sought.run_id),
        "after": sought.after_event,
        "since": sought.since,
        "but": list(sought.but),
    }
    rows = fetch(FIND_BY_SUBJECT if sought.subject else FIND, parameters)
    found: UUID | None = rows[0][0] if rows else None
    return found


def _earlier(run_id: UUID) -> UUID:
    """The least id of the time before the run's event (of a child: of the first run's)."""
    milliseconds = int.from_bytes(run_id.bytes[:TIME_PREFIX])
    return UUID(bytes=max(milliseconds - EARLY, 0).to_bytes(TIME_PREFIX) + bytes(16 - TIME_PREFIX))


def _nested(match: Mapping[str, Any]) -> dict[str, Any]:
    """{"customer.id": 7} as the object that contains it."""
    whole: dict[str, Any] = {}
    for path, value in match.items():
        inner = whole
        *names, last = path.split(".")
        for name in names:
            inner = inner.setdefault(name, {})
        inner[last] = value
    return whole
