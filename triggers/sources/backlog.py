"""The backlog: events that wait for dispatch, of sources that can wait. At the limit senders get 503, and readers read
nothing. Each of the two groups has its own limit: a message waits at its broker without loss, so readers must not cost
a sender its delivery. Events that cannot be kept out (changes of watched tables, schedules, what runs emit) do not
count for either group.
"""

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from uuid import UUID

from django.conf import settings

from runs.db.sql import fetch
from triggers.sources.kind import Waits, kinds

SENDERS = ("api", "cli", "manual")  # the kinds of sources that are built in, or belong to a token, and count as senders

# One step down the index for each source with undispatched events; of each, at most one more than the limit.
UNDISPATCHED = """
WITH RECURSIVE waiting AS (
  (SELECT source_id AS id FROM triggers_event WHERE dispatched_at IS NULL ORDER BY source_id LIMIT 1)
  UNION ALL
  SELECT (SELECT source_id FROM triggers_event WHERE dispatched_at IS NULL AND source_id > waiting.id ORDER BY source_id LIMIT 1)
  FROM waiting WHERE waiting.id IS NOT NULL)
SELECT source.id, source.kind, counted.number
FROM waiting JOIN triggers_source source ON source.id = waiting.id CROSS JOIN LATERAL (
  SELECT count(*) AS number FROM (
    SELECT FROM triggers_event WHERE dispatched_at IS NULL AND source_id = source.id ORDER BY seq LIMIT %(most)s::int) one) counted
WHERE source.kind = ANY(%(kinds)s::text[])
"""


@dataclass(frozen=True, kw_only=True)
class Backlog:
    """Undispatched events a moment ago."""

    looked_at: float = float("-inf")
    of_source: Mapping[UUID, int]
    of_all: Mapping[Waits, int]


LOOK_EVERY = 1.0  # seconds
NEVER = Backlog(of_source={}, of_all={})
_backlog = NEVER


def backlog_exceeded(source_id: UUID, waits: Waits, *, is_verified: bool = True) -> bool:
    """Whether more events wait for dispatch than WAKEFUL_MAX_BACKLOG, of all sources that wait in this way, or of this source more
    than WAKEFUL_MAX_SOURCE_BACKLOG (a tenth of it for an unverified source). Queried at most once a second per process."""
    look()
    return was_exceeded(source_id, waits, is_verified=is_verified)


def look() -> None:
    global _backlog
    if seconds_since_look() >= LOOK_EVERY:
        _backlog = _look()


def seconds_since_look() -> float:
    return time.monotonic() - _backlog.looked_at


def was_exceeded(source_id: UUID, waits: Waits, *, is_verified: bool = True) -> bool:
    """The same by the last look; it queries nothing."""
    part = settings.WAKEFUL_MAX_SOURCE_BACKLOG if is_verified else settings.WAKEFUL_MAX_SOURCE_BACKLOG // 10
    return _backlog.of_all.get(waits, 0) > settings.WAKEFUL_MAX_BACKLOG or _backlog.of_source.get(source_id, 0) > part


def _look() -> Backlog:
    ways = _ways()
    rows = fetch(UNDISPATCHED, {"most": settings.WAKEFUL_MAX_BACKLOG + 1, "kinds": list(ways)})
    of_all = Counter[Waits]()
    for _, kind, number in rows:
        of_all[ways[kind]] += number
    return Backlog(looked_at=time.monotonic(), of_source={id: number for id, _, number in rows}, of_all=of_all)


@cache
def _ways() -> Mapping[str, Waits]:
    """Where the events of each kind of source wait."""
    return {
        **dict.fromkeys(SENDERS, Waits.SENDER),
        **{name: kind.waits for name, kind in kinds().items() if kind.waits},
    }
