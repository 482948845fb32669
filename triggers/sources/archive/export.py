"""Export the events of a search, in the order of their ids. Memory holds one group of events; no transaction stays open. An export
that was interrupted goes on after the id of its last line."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from agents.redaction import redacted_json
from runs.db.sql import fetch, fetch_as
from triggers.events.search import Search
from triggers.models import Event
from triggers.sources.archive.line import Line, write

SCAN = 5_000  # events that one query looks at
GROUP, GROUP_BYTES = 200, 2 * 2**20  # events that are read together, and their stored bytes; at least one
SIZES = """
SELECT id, coalesce(octet_length(body), 0) + coalesce(pg_column_size(data), 0)
FROM triggers_event WHERE id = ANY(%s::uuid[]) ORDER BY id
"""
# A body whose JSON is there is only exported if it is asked for.
ROWS = """
SELECT event.id, source.slug AS source, event.ce_source, event.ce_id, event.type, event.subject, event.time, event.received_at,
       event.data::text AS text, event.data_error, CASE WHEN event.data IS NULL OR %(raw)s::boolean THEN event.body END AS body,
       event.body_sha256, event.headers, event.payload_removed_at, event.target_id, event.root_id, event.cause_event_id,
       event.cause_run_id, event.depth, event.chain, event.is_tainted
FROM triggers_event event JOIN triggers_source source ON source.id = event.source_id
WHERE event.id = ANY(%(ids)s::uuid[]) ORDER BY event.id
"""


@dataclass(frozen=True, kw_only=True)
class Exported:
    """A line of an export, and the id of its event."""

    id: UUID
    text: bytes


def export(search: Search, *, after: UUID | None = None, raw: bool = False) -> Iterator[Exported]:
    """The events after this id; with their bodies as received if `raw`. An event without payload says so: `wakefulremoved`."""
    position, ceiling = max(filter(None, (after, search.floor)), default=UUID(int=0)), search.ceiling
    while True:
        rest = Event.objects.filter(id__gt=position)
        rest = rest.filter(id__lt=ceiling) if ceiling else rest
        last = rest.order_by("id").values_list("id", flat=True)[SCAN - 1 : SCAN].first()
        within = rest.filter(id__lte=last) if last else rest
        for group in _groups(list(search.of(within).order_by("id").values_list("id", flat=True)[:SCAN])):
            yield from fetch_as(_exported, ROWS, {"ids": group, "raw": raw})
        if last is None:
            return
        position = last


def _groups(ids: list[UUID]) -> Iterator[list[UUID]]:
    group: list[UUID] = []
    total = 0
    for id, size in fetch(SIZES, [ids]) if ids else ():
        if group and (len(group) >= GROUP or total + size > GROUP_BYTES):
            yield group
            group, total = [], 0
        group.append(id)
        total += size
    if group:
        yield group


def _exported(*, text: str | None, headers: str | None, **columns: Any) -> Exported:
    line = Line(headers=redacted_json(json.loads(headers)) if headers else None, **columns)
    return Exported(id=line.id or UUID(int=0), text=write(line, _shown(text)))


def _shown(text: str | None) -> str | None:
    """Without the secrets that Wakeful knows; otherwise as PostgreSQL writes it, numbers included."""
    data = json.loads(text) if text else None
    shown = redacted_json(data)
    return text if shown == data else json.dumps(shown, ensure_ascii=False)
