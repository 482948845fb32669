"""Concurrency keys. Which run of a key may be ready is decided under the key's advisory lock, looking in a new
statement; the unique index on (key, slot) is the backstop, and its violation a bug."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db import connection

from runs.states import LIVE

LOCK = "SELECT pg_advisory_xact_lock(hashtextextended(%s::text, 0))"
TRY_LOCK = """
SELECT key FROM unnest(%s::text[]) WITH ORDINALITY AS wanted(key, position)
WHERE pg_try_advisory_xact_lock(hashtextextended(key, 0))
"""
STATES = """
SELECT key, count(slot), count(*) FILTER (WHERE slot IS NOT NULL OR status IN ('queued', 'running')),
       (array_agg(id ORDER BY slot NULLS LAST, seq))[1]
FROM runs_run WHERE key = ANY(%s::text[]) AND status = ANY(%s::text[]) GROUP BY key
"""


@dataclass(kw_only=True)
class KeyState:
    """The live runs of a key, as admission counts them."""

    occupied: int = 0
    live: int = 0
    first: UUID | None = None


def lock(key: str) -> None:
    """Take a key's lock until the transaction ends."""
    with connection.cursor() as cursor:
        cursor.execute(LOCK, [key])


def try_lock(keys: Iterable[str]) -> set[str]:
    """Those of the keys whose lock this transaction got; it waits for none."""
    wanted = sorted(set(keys))
    if not wanted:
        return set()
    with connection.cursor() as cursor:
        cursor.execute(TRY_LOCK, [wanted])
        return {key for (key,) in cursor.fetchall()}


def states(keys: Iterable[str]) -> dict[str, KeyState]:
    """The state of each key; call it under their locks, in a statement of its own."""
    wanted = sorted(set(keys))
    if not wanted:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(STATES, [wanted, sorted(LIVE)])
        found: Sequence[tuple[str, int, int, UUID]] = cursor.fetchall()
    known = {key: KeyState(occupied=occupied, live=live, first=first) for key, occupied, live, first in found}
    return {key: known.get(key, KeyState()) for key in wanted}
