"""Messages that cannot become events: kept with their reason, shown on the page of the source, deleted by retention."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import structlog
from psycopg.types.json import Jsonb

from runs.db.sql import execute_many
from triggers.sources.http.headers import redact_texts, storable
from triggers.sources.runner import Poison, origin_of
from triggers.sources.webhooks.naming import event_id, event_origin

log = structlog.get_logger(__name__)

KEPT_BYTES = 2**20  # of a body
REASON_CHARACTERS = 300
# A message that is read again counts once more.
KEEP = """
INSERT INTO triggers_poisonmessage (source_id, origin, message_id, reason, body, size, headers)
VALUES (%s::uuid, %s::text, %s::text, %s::text, %s::bytea, %s::bigint, %s::jsonb)
ON CONFLICT (source_id, origin, message_id) DO UPDATE
  SET count = triggers_poisonmessage.count + 1, last_at = now(), reason = excluded.reason
"""


def keep(source_id: UUID, slug: str, messages: Sequence[Poison]) -> None:
    """Keep poison messages, in the caller's transaction."""
    if not messages:
        return
    execute_many(KEEP, [_columns(source_id, slug, message) for message in messages])
    log.warning("source.poison", source=slug, count=len(messages), reason=messages[0].reason)


def _columns(source_id: UUID, slug: str, message: Poison) -> list[Any]:
    id = event_id(message.id)
    return [
        source_id, event_origin(message.origin or origin_of(slug), id), id,
        storable(message.reason)[:REASON_CHARACTERS], message.body[:KEPT_BYTES], len(message.body),
        Jsonb(redact_texts(message.headers)),
    ]  # fmt: skip
