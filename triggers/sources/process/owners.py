"""Who owns a source: one live process, by the lease of its row.

An owner holds a source until it gives it back, or until its row is closed or unseen for WAKEFUL_LEASE. That its session has vanished
does not count: it may still read. Each new owner has a new epoch, and every commit of a batch requires owner and epoch: a frozen
owner that wakes up commits nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from runs.db.sql import execute, fetch_as
from runs.processes.alive import HOLDS_LEASE, IS_ALIVE
from runs.processes.lease import EXPIRES, patience

CHANNEL = "wakeful_sources"  # of the NOTIFY that a source was edited or given back
Ask = Callable[[Callable[..., Any], str, Any], list[Any]]
# A frozen owner keeps its row locked while it commits a batch; its session then ends by a timeout.
OF_DEAD = f"""
reading.owner_id IS NULL OR NOT EXISTS (SELECT FROM runs_worker worker WHERE worker.id = reading.owner_id AND {HOLDS_LEASE})
"""  # noqa: S608  (our own parts)
# Of several live secrets the newest counts.
LOOK = f"""
SELECT source.id, source.slug, source.kind, source.settings::json AS settings, reading.epoch,
  reading.owner_id IS NOT DISTINCT FROM %(me)s::uuid AS is_mine, {OF_DEAD} AS is_free,
  (SELECT extract(epoch FROM {EXPIRES} - clock_timestamp())::float8 FROM runs_worker worker
   WHERE worker.id = reading.owner_id AND {HOLDS_LEASE}) AS owned_for,
  (SELECT max(secret.id) FROM triggers_secret secret WHERE secret.source_id = source.id
     AND secret.not_before <= clock_timestamp() AND (secret.not_after IS NULL OR secret.not_after > clock_timestamp())) AS secret_id,
  (SELECT count(*) FROM runs_worker worker WHERE worker.kind = 'sources' AND {IS_ALIVE}) AS processes,
  (SELECT channel.hinted_at FROM triggers_pushchannel channel WHERE channel.source_id = source.id) AS hinted_at
FROM triggers_source source LEFT JOIN triggers_reading reading ON reading.source_id = source.id
WHERE source.enabled AND source.kind = ANY(%(kinds)s::text[])
ORDER BY source.slug
"""  # noqa: S608  (our own parts)
MAKE = "INSERT INTO triggers_reading (source_id) SELECT unnest(%s::uuid[]) ON CONFLICT (source_id) DO NOTHING"
TAKE = f"""
UPDATE triggers_reading reading
SET owner_id = %(me)s::uuid, epoch = reading.epoch + 1, taken_at = clock_timestamp(), freed_at = NULL, held_since = NULL
WHERE reading.source_id IN (
  SELECT source_id FROM triggers_reading reading WHERE source_id = ANY(%(sources)s::uuid[]) AND ({OF_DEAD})
  FOR UPDATE SKIP LOCKED)
RETURNING reading.source_id, reading.epoch, reading.position::json AS position,
  CASE WHEN reading.marks->>'of' IS NOT DISTINCT FROM md5(reading.position::text) THEN reading.marks->'streams' END::json AS marks
"""  # noqa: S608  (our own parts)
GIVE_BACK = f"""
WITH freed AS (
  UPDATE triggers_reading SET owner_id = NULL, freed_at = clock_timestamp(), held_since = NULL
  WHERE source_id = ANY(%s::uuid[]) AND owner_id = %s::uuid RETURNING source_id
)
SELECT pg_notify('{CHANNEL}', '') FROM freed LIMIT 1
"""  # noqa: S608  (our own parts)


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """An enabled source whose kind is a runner."""

    id: UUID
    slug: str
    kind: str
    settings: Any
    secret_id: int | None
    epoch: int | None
    is_mine: bool
    is_free: bool
    owned_for: float | None  # seconds until its owner's lease ends, if it is not renewed
    processes: int  # live ones, for a fair share
    hinted_at: datetime | None  # when its push channel has brought something, the last time

    @property
    def configured(self) -> tuple[Any, ...]:
        """The part that a reader is connected with."""
        return self.slug, self.kind, self.settings, self.secret_id


@dataclass(frozen=True, kw_only=True)
class Taken:
    source_id: UUID
    epoch: int
    position: Any
    marks: Any  # null: none, or of another position


def wanted(me: UUID | None, kinds: Sequence[str], ask: Ask = fetch_as) -> list[Wanted]:
    return ask(Wanted, LOOK, {"me": me, "kinds": list(kinds), **patience()})


def take(me: UUID, sources: Sequence[UUID]) -> list[Taken]:
    """Own these sources, unless another process was faster or still commits a batch of one."""
    if not sources:
        return []
    execute(MAKE, [list(sources)])
    return fetch_as(Taken, TAKE, {"me": me, "sources": list(sources), **patience()})


def give_back(me: UUID, sources: Sequence[UUID]) -> None:
    if sources:
        execute(GIVE_BACK, [list(sources), me])


def fair_share(sources: int, processes: int) -> int:
    """The number of sources that each live process should read."""
    return -(-sources // max(processes, 1))
