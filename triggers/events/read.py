"""Read recorded events, for runs and agents."""

import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from agents import Event
from runs.db.sql import fetch, fetch_as
from runs.ports import Searched, Sought

# No stranger writes through these: each API token, the command line, schedules, runs and the console.
BUILT_IN = "('api', 'cli', 'schedule', 'run', 'manual')"
# Nor of a source that is gone is it known that none does.
BY_STRANGERS = f"coalesce(NOT (source.trusted OR source.kind IN {BUILT_IN}), true)"
FROM_STRANGERS = f"""
SELECT EXISTS (SELECT FROM triggers_event event LEFT JOIN triggers_source source ON source.id = event.source_id
               WHERE event.id = ANY((SELECT %s::uuid[])::uuid[]) AND {BY_STRANGERS})
"""  # noqa: S608  (our own parts)
# The array in a sub-SELECT: one plan for any number of events, which would be made at each execution otherwise.
READ = f"""
SELECT event.id, event.type, coalesce(source.slug, '') AS source, event.subject, coalesce(event.time, event.received_at) AS time,
       event.data, event.is_tainted, {BY_STRANGERS} AS from_strangers
FROM triggers_event event LEFT JOIN triggers_source source ON source.id = event.source_id
WHERE event.id = ANY((SELECT %s::uuid[])::uuid[]) ORDER BY event.seq
"""  # noqa: S608  (our own parts)
# The size as stored, compressed or not: PostgreSQL need not read the data to know it.
SMALL = 8192  # bytes
READ_AHEAD = READ.replace(
    "ORDER BY", f"AND (event.id = (SELECT %s::uuid) OR pg_column_size(event.data) <= {SMALL}) ORDER BY"
)
ITS_SOURCE = "(%(source)s::text = '' OR source_id = (SELECT id FROM triggers_source WHERE slug = %(source)s::text))"
# One page of a search, in the order of `seq`. Undispatched and dispatched events have separate indexes; the page ends at the
# lowest `seq` at which either index has yielded `most` events. Both are read in one snapshot, so that an event that is
# dispatched meanwhile is not missed. Events without payload do not match. The type and the length of a page are in sub-SELECTs:
# one plan for any; among millions of events it would be planned at each execution otherwise.
FIND = """
WITH first AS MATERIALIZED (
  SELECT coalesce(%(searched_to)s::bigint, (SELECT seq FROM triggers_event WHERE id = %(after)s::uuid),
                  (SELECT seq FROM triggers_event WHERE id = %(root)s::uuid), 0) AS seq
), page AS MATERIALIZED (
  SELECT least(
    (SELECT seq FROM triggers_event
     WHERE type = (SELECT %(type)s::text) AND dispatched_at IS NOT NULL AND seq > (SELECT seq FROM first)
     ORDER BY seq OFFSET (SELECT %(most)s::int - 1) LIMIT 1),
    (SELECT seq FROM triggers_event WHERE dispatched_at IS NULL AND seq > (SELECT seq FROM first)
     ORDER BY seq OFFSET (SELECT %(most)s::int - 1) LIMIT 1)) AS last
)
SELECT (
  SELECT event.id FROM (
    (SELECT id, seq FROM triggers_event
     WHERE type = (SELECT %(type)s::text) AND dispatched_at IS NOT NULL
       AND seq > (SELECT seq FROM first) AND seq <= coalesce((SELECT last FROM page), %(end)s::bigint)
       AND {wanted} ORDER BY seq LIMIT 1)
    UNION ALL
    (SELECT id, seq FROM triggers_event
     WHERE dispatched_at IS NULL AND type = (SELECT %(type)s::text)
       AND seq > (SELECT seq FROM first) AND seq <= coalesce((SELECT last FROM page), %(end)s::bigint)
       AND {wanted} ORDER BY seq LIMIT 1)
  ) event ORDER BY event.seq LIMIT 1
), (SELECT last FROM page)
""".replace(
    "{wanted}",
    """payload_removed_at IS NULL AND (%(match)s::jsonb IS NULL OR data @> %(match)s::jsonb)
       AND (%(after)s::uuid IS NOT NULL OR received_at >= %(since)s::timestamptz) AND id <> ALL (%(but)s::uuid[])
       AND {its_source}""",
).replace("{its_source}", ITS_SOURCE)
FIND_BY_SUBJECT = """
SELECT (
  SELECT id FROM triggers_event
  WHERE subject = %(subject)s::text AND subject <> '' AND type = %(type)s::text AND payload_removed_at IS NULL
    AND (%(match)s::jsonb IS NULL OR data @> %(match)s::jsonb) AND id <> ALL (%(but)s::uuid[])
    AND {its_source}
  ORDER BY seq LIMIT 1
), NULL::bigint
""".replace("{its_source}", ITS_SOURCE)
END = 2**63 - 1  # no `seq` is higher


def read_events(event_ids: Sequence[UUID]) -> list[Event]:
    """Events as agents get them, in order of arrival."""
    return fetch_as(_event, READ, [list(event_ids)])


def read_ahead(event_id: UUID, others: Sequence[UUID]) -> list[Event]:
    """This event, and those of the others whose data is small: of large ones, a process holds no more at once than its body asks for."""
    return fetch_as(_event, READ_AHEAD, [[event_id, *others], event_id])


def from_strangers(event_ids: Sequence[UUID]) -> bool:
    """May strangers have written the data of one of these events, by what their sources say?"""
    [(found,)] = fetch(FROM_STRANGERS, [list(event_ids)])
    return bool(found)


def _event(*, data: str | None, **columns: Any) -> Event:
    return Event(data=None if data is None else json.loads(data), **columns)


def find_event(sought: Sought) -> Searched:
    """The first event in the next page of a search that ends a run's wait, dispatched or not."""
    [(found, last)] = fetch(*search_of(sought))
    return Searched(event_id=found, searched_to=None if found else last)


def search_of(sought: Sought) -> tuple[str, Mapping[str, Any]]:
    """The query of `find_event`: one row, with the event and the `seq` up to which it has read, if there is more."""
    parameters = {
        "type": sought.type,
        "source": sought.source,
        "match": Jsonb(_nested(sought.match)) if sought.match else None,
        "but": list(sought.but),
    }
    if sought.subject:
        return FIND_BY_SUBJECT, {**parameters, "subject": sought.subject}
    page = {
        "after": sought.after_event,
        "root": sought.root,
        "since": sought.since,
        "searched_to": sought.searched_to,
        "most": sought.most,
        "end": END,
    }
    return FIND, {**parameters, **page}


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
