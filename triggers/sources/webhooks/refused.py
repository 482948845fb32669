"""Count refused deliveries: one row per source, reason and hour, so that strangers cannot fill the table. Deliveries to
an address without a source are not counted."""

import structlog
from django.db import Error

from runs.db.sql import execute
from triggers.sources.webhooks.scheme import schemes

log = structlog.get_logger(__name__)

REASON_CHARACTERS = 200
USER_AGENT_CHARACTERS = 200
DISABLED = "the source is disabled"
RESERVED = "the type of the event is reserved"
# Does not wait for the disk, and only briefly for a locked row: a sender is waiting.
NOTE = """
INSERT INTO triggers_refuseddelivery (source_id, hour, reason, status, user_agent)
SELECT source.id, date_trunc('hour', statement_timestamp()), %(reason)s::text, %(status)s::smallint, %(user_agent)s::text
FROM triggers_source source
WHERE source.slug = %(slug)s::text AND source.kind = ANY(%(kinds)s::text[]) AND (source.enabled OR %(status)s::smallint = 404)
  AND set_config('synchronous_commit', 'off', true) IS NOT NULL AND set_config('lock_timeout', '200ms', true) IS NOT NULL
ON CONFLICT (source_id, hour, reason) DO UPDATE
  SET count = triggers_refuseddelivery.count + 1, last_at = statement_timestamp(), user_agent = excluded.user_agent
"""


def note_refused(slug: str, *, reason: str, status: int, user_agent: str) -> None:
    """Count a delivery that was answered with an error. A database error is only logged, and the answer is still sent."""
    parameters = {
        "slug": slug,
        "kinds": list(schemes()),
        "reason": reason[:REASON_CHARACTERS],
        "status": status,
        "user_agent": user_agent.replace("\x00", "")[:USER_AGENT_CHARACTERS],
    }
    try:
        execute(NOTE, parameters)
    except Error:
        log.warning("hook.refusal_not_noted", source=slug, exc_info=True)
