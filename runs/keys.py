"""Concurrency keys. Which run of a key may be ready is decided under the key's advisory lock, looking in a new
statement; the unique index on (key, slot) is the backstop, and its violation a bug."""

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from runs.sql import execute, fetch

LOCK = "SELECT pg_advisory_xact_lock(hashtextextended(%s::text, 0))"
TRY_LOCK = """
SELECT key FROM unnest(%s::text[]) WITH ORDINALITY AS wanted(key, position)
WHERE pg_try_advisory_xact_lock(hashtextextended(key, 0))
"""
STATES = """
SELECT key, count(*) FILTER (WHERE slot IS NOT NULL OR status IN ('queued', 'running')),
       (array_agg(id ORDER BY slot NULLS LAST, seq))[1]
FROM runs_run WHERE key = ANY(%s::text[]) AND status IN ('queued', 'running', 'waiting', 'uncertain') GROUP BY key
"""


@dataclass(kw_only=True)
class KeyState:
    """The live runs of a key, as admission counts them."""

    live: int = 0
    first: UUID | None = None


def lock(key: str) -> None:
    """Take a key's lock until the transaction ends."""
    execute(LOCK, [key])


def try_lock(keys: Iterable[str]) -> set[str]:
    """Those of the keys whose lock this transaction got; it waits for none."""
    wanted = sorted(set(keys))
    if not wanted:
        return set()
    return {key for (key,) in fetch(TRY_LOCK, [wanted])}


def states(keys: Iterable[str]) -> dict[str, KeyState]:
    """The state of each key; call it under their locks, in a statement of its own."""
    wanted = sorted(set(keys))
    if not wanted:
        return {}
    found = fetch(STATES, [wanted])
    known = {key: KeyState(live=live, first=first) for key, live, first in found}
    return {key: known.get(key, KeyState()) for key in wanted}
