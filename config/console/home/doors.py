"""The doors: when the last event of each source came, how long it usually takes until the next, and what is wrong with it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from uuid import UUID

from agents.kernel.durations import in_words
from config.console.parts.links import listing, page
from config.console.parts.moments import appointment
from config.console.parts.sections import Cell
from runs.db.sql import fetch_as
from triggers.sources.kind import kinds

MOST = 100  # sources that are looked at
SHOWN = 10
LAST = 20  # events of a source that its rhythm is learned from
FEWEST = 5  # gaps that make a rhythm
FACTOR, LEAST = 3, timedelta(minutes=10)  # as long as its longest gap, so often, and never less
DOORS = """
SELECT source.id, source.slug, source.kind, event.received, refused.count AS refused, refused.since AS refused_since,
  reading.failing_since, timer.opened_at
FROM (SELECT id, slug, kind FROM triggers_source WHERE enabled AND kind = ANY(%(kinds)s::text[]) ORDER BY slug LIMIT %(most)s::int) source
CROSS JOIN LATERAL (
  SELECT array_agg(received_at ORDER BY received_at DESC) AS received FROM (
    (SELECT received_at FROM triggers_event WHERE source_id = source.id AND dispatched_at IS NOT NULL
     ORDER BY seq DESC LIMIT %(last)s::int)
    UNION ALL
    (SELECT received_at FROM triggers_event WHERE source_id = source.id AND dispatched_at IS NULL
     ORDER BY seq DESC LIMIT %(last)s::int)) newest) event
CROSS JOIN LATERAL (
  SELECT sum(count)::bigint AS count, min(first_at) AS since, max(last_at) AS last_at FROM triggers_refuseddelivery
  WHERE source_id = source.id AND hour >= %(since)s::timestamptz) refused
LEFT JOIN triggers_reading reading ON reading.source_id = source.id
LEFT JOIN LATERAL (
  SELECT opened_at FROM triggers_switchtimer WHERE source_id = source.id AND state = 'open' ORDER BY opened_at DESC LIMIT 1) timer ON true
"""
ORDER = ("down", "fails", "refused", "silent", "as usual", "")


@dataclass(frozen=True, kw_only=True)
class Found:
    id: UUID
    slug: str
    kind: str
    received: Sequence[datetime] | None
    refused: int | None
    refused_since: datetime | None
    failing_since: datetime | None
    opened_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class Door:
    """`state`: one of ORDER; `said` is why."""

    slug: str
    kind: str
    url: str
    events_url: str
    last_at: datetime | None
    usual: str
    state: str
    since: datetime | None

    @property
    def last_shown(self) -> Cell:
        return appointment(self.last_at) if self.last_at else ""

    @property
    def level(self) -> str:
        return {"": "", "as usual": "good", "silent": "warning"}.get(self.state, "bad")


def doors(now: datetime) -> list[Door]:
    """Those with trouble first, then by the last event."""
    asked = {"kinds": sorted(kinds()), "most": MOST, "last": LAST, "since": now - timedelta(days=1)}
    found = [_door(one, now) for one in fetch_as(Found, DOORS, asked)]
    found.sort(key=lambda one: one.last_at.timestamp() if one.last_at else 0, reverse=True)
    return sorted(found, key=lambda one: ORDER.index(one.state))


def _door(one: Found, now: datetime) -> Door:
    received = list(one.received or ())[:LAST]
    gaps = [later - earlier for later, earlier in pairwise(received)]
    state, since = _state(one, received, gaps, now)
    return Door(
        slug=one.slug,
        kind=one.kind,
        url=page("triggers_source", one.id),
        events_url=listing("triggers_event", source__id__exact=one.id),
        last_at=received[0] if received else None,
        usual=f"usually every {in_words(_rounded(sorted(gaps)[len(gaps) // 2]))}" if len(gaps) >= FEWEST else "",
        state=state,
        since=since,
    )


def _state(
    one: Found, received: Sequence[datetime], gaps: Sequence[timedelta], now: datetime
) -> tuple[str, datetime | None]:
    last = received[0] if received else None
    if one.opened_at:
        return "down", one.opened_at
    if one.failing_since:
        return "fails", one.failing_since
    if one.refused and (last is None or (one.refused_since and one.refused_since > last)):
        return "refused", one.refused_since
    if last and len(gaps) >= FEWEST:
        is_silent = now - last > max(max(gaps) * FACTOR, LEAST)
        return ("silent", last) if is_silent else ("as usual", None)
    return "", None


def _rounded(gap: timedelta) -> timedelta:
    seconds = gap.total_seconds()
    unit = 86400 if seconds >= 172800 else 3600 if seconds >= 7200 else 60 if seconds >= 120 else 1
    return timedelta(seconds=max(round(seconds / unit), 1) * unit)
