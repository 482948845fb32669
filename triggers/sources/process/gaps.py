"""Gaps of a source: each is an event before those of its batch, and a row for the source's page and its problem. One that is still
open is counted, without a further event."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import structlog

from agents.kernel.reserved_types import GAP
from runs.db.sql import execute, execute_many
from triggers.accept import Incoming, accept_own
from triggers.sources.continuity import Gap
from triggers.sources.http.headers import storable
from triggers.sources.runner import origin_of

log = structlog.get_logger(__name__)

KEEP = """
INSERT INTO triggers_sourcegap (source_id, gap_id, stream, reason, start, "end", count, detail)
VALUES (%s::uuid, %s::text, %s::text, %s::text, %s::text, %s::text, %s::bigint, %s::text)
ON CONFLICT (source_id, gap_id) DO NOTHING
"""
COUNT = """
UPDATE triggers_sourcegap SET times = times + 1, since = coalesce(since, at), at = clock_timestamp()
WHERE id = (
  SELECT id FROM triggers_sourcegap
  WHERE source_id = %s::uuid
    AND at > (SELECT clock_timestamp()) - %s::interval AND stream = %s::text AND reason = %s::text ORDER BY at DESC LIMIT 1)
"""


def keep_gaps(source_id: UUID, slug: str, batch_id: UUID, gaps: Sequence[Gap]) -> None:
    """Record gaps in the caller's transaction; the caller wakes the dispatcher. The batch's id keeps a gap unique if
    the batch is recorded again.
    """
    gaps = [gap for gap in gaps if not _counted(source_id, gap)]
    if not gaps:
        return
    ids = [f"gap/{batch_id}/{number}" for number in range(len(gaps))]
    accept_own([_event(source_id, slug, id, gap) for id, gap in zip(ids, gaps, strict=True)])
    execute_many(
        KEEP,
        [
            [
                source_id, id, storable(gap.stream), gap.reason.value, gap.start, gap.end, gap.count, storable(gap.detail),
            ]
            for id, gap in zip(ids, gaps, strict=True)
        ],
    )  # fmt: skip
    for gap in gaps:
        log.warning("source.gap", source=slug, stream=gap.stream, reason=gap.reason.value, count=gap.count)


def _counted(source_id: UUID, gap: Gap) -> bool:
    """Whether the gap continues an open one, which then counts once more."""
    return bool(gap.open_for) and bool(
        execute(COUNT, [source_id, gap.open_for, storable(gap.stream), gap.reason.value])
    )


def _event(source_id: UUID, slug: str, id: str, gap: Gap) -> Incoming:
    data: dict[str, Any] = {
        "source": slug,
        "stream": storable(gap.stream),
        "from": gap.start or None,
        "to": gap.end or None,
        "count": gap.count,
        "reason": gap.reason.value,
    }
    return Incoming(source_id=source_id, ce_source=origin_of(slug), ce_id=id, type=GAP, subject=slug, data=data)
