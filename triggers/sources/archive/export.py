"""Export the events of a search, in the order of `seq`. Memory holds one group of events; no transaction stays open. An export that was
interrupted goes on after the `seq` of its last line: it ends at the horizon, below which no event is committed any more.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from agents.kernel.redaction import shown, shown_bytes, shown_json
from runs.db.sql import fetch, fetch_as
from triggers.events.order import Horizon, in_order, last_seq, scanned
from triggers.events.search import Search
from triggers.models import Event
from triggers.sources.archive.line import Line, write

SCAN = 5_000  # events that one query looks at
# Seconds to wait for transactions that may still commit an event, and between two looks at them.
PATIENCE, PAUSE = 2.0, 0.02
GROUP, GROUP_BYTES = 200, 2 * 2**20  # events that are read together, and their stored bytes; at least one
SIZES = """
SELECT id, coalesce(octet_length(body), 0) + coalesce(pg_column_size(data), 0)
FROM triggers_event WHERE id = ANY(%s::uuid[]) ORDER BY seq
"""
# A body that is also stored as JSON is only exported on request.
ROWS = """
SELECT event.id, event.seq, source.slug AS source, event.ce_source, event.ce_id, event.type, event.subject, event.time, event.received_at,
       event.data::text AS text, event.data_error, CASE WHEN event.data IS NULL OR %(raw)s::boolean THEN event.body END AS body,
       event.body_sha256, event.headers, event.payload_removed_at, event.target_id, event.root_id, event.cause_event_id,
       event.cause_run_id, event.depth, event.chain, event.is_tainted
FROM triggers_event event JOIN triggers_source source ON source.id = event.source_id
WHERE event.id = ANY(%(ids)s::uuid[]) ORDER BY event.seq
"""


@dataclass(frozen=True, kw_only=True)
class Exported:
    """A line of an export, and the `seq` of its event."""

    seq: int
    text: bytes


def export(search: Search, *, after: int = 0, raw: bool = False, horizon: Horizon | None = None) -> Iterator[Exported]:
    """The events above this `seq`; with their bodies as received if `raw`. That of an event without payload has `wakefulremoved`. It ends
    at the last event of its beginning, or before, at the horizon, if a transaction stays open that may commit one below."""
    horizon = horizon or Horizon()
    position, goal = max(after, search.above), last_of(search)
    patient_until = time.monotonic() + PATIENCE
    while position < goal:
        end = min(horizon.advance(), goal)
        if end > position:
            last = scanned(position, end, SCAN)
            found = search.of(Event.objects.filter(seq__gt=position, seq__lte=last).only("seq"))
            for group in _groups([event.pk for event in in_order(found, 2 * SCAN)]):
                yield from fetch_as(_exported, ROWS, {"ids": group, "raw": raw})
            position = last
        elif time.monotonic() < patient_until:
            time.sleep(PAUSE)
        else:
            return


def last_of(search: Search) -> int:
    """The `seq` at which an export ends."""
    last = last_seq()
    return last if search.upto is None else min(last, search.upto)


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


def _exported(
    *,
    seq: int,
    text: str | None,
    body: bytes | None,
    headers: str | None,
    subject: str,
    data_error: str,
    **columns: Any,
) -> Exported:
    line = Line(
        seq=seq,
        body=None if body is None else shown_bytes(bytes(body)),
        headers=shown_json(json.loads(headers)) if headers else None,
        subject=shown(subject),
        data_error=shown(data_error),
        **columns,
    )
    return Exported(seq=seq, text=write(line, _shown(text)))


def _shown(text: str | None) -> str | None:
    """JSON without the secrets that Wakeful knows; otherwise as PostgreSQL writes it, numbers included."""
    data = json.loads(text) if text else None
    shown = shown_json(data)
    return text if shown == data else json.dumps(shown, ensure_ascii=False)
