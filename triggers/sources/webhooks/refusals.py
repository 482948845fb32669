"""Answer refused deliveries, and count them: one row per source, reason and hour, so that strangers cannot fill the table.
Deliveries to an address without a source are not counted."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import structlog
from django.db import Error, InterfaceError, OperationalError
from rest_framework.exceptions import APIException, NotFound

from runs.db.sql import execute
from triggers.accept import ReservedType
from triggers.sources.http.answers import Unavailable
from triggers.sources.http.headers import UnreadableField
from triggers.sources.webhooks.door import WrongMethod
from triggers.sources.webhooks.limits import ForeignAddress, TooMany
from triggers.sources.webhooks.proof import Rejected
from triggers.sources.webhooks.receive import Misconfigured
from triggers.sources.webhooks.scheme import schemes

log = structlog.get_logger(__name__)

REASON_CHARACTERS = 200
USER_AGENT_CHARACTERS = 200
DISABLED = "the source is disabled"
RESERVED = "the type of the event is reserved"
REASONS: Mapping[type[Exception], str] = {
    NotFound: DISABLED,
    ForeignAddress: "the sender's address is not one of the allowed ones",
    TooMany: "more deliveries in a minute than the source takes",
}
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


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """The answer to a refused delivery. `reason` is counted, and shown to operators only; without one, nothing is counted.
    `log_as` is empty for what strangers may cause without end."""

    status: int
    data: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    reason: str = ""
    log_as: str = ""
    is_our_fault: bool = False


def refusal_of(error: Exception) -> Refusal | None:
    """The door's answer to this error; None: it is a bug."""
    if isinstance(error, Rejected):
        challenge = {"WWW-Authenticate": "Signature"}
        return Refusal(status=401, headers=challenge, reason=error.reason, log_as="hook.rejected")
    if isinstance(error, UnreadableField):
        data = {"detail": str(error), "field": error.name}
        return Refusal(status=400, data=data, reason=str(error), log_as="hook.refused")
    if isinstance(error, ReservedType):
        return Refusal(status=400, data={"detail": str(error), "field": "type"}, reason=RESERVED, log_as="hook.refused")
    if isinstance(error, Misconfigured):
        return replace(_worded(Unavailable()), reason=str(error), log_as="hook.misconfigured", is_our_fault=True)
    if isinstance(error, (OperationalError, InterfaceError)):  # which cannot be counted
        return replace(_worded(Unavailable()), reason="", log_as="hook.database_unavailable", is_our_fault=True)
    if isinstance(error, ForeignAddress):
        return replace(_worded(error), log_as="hook.refused")
    if isinstance(error, WrongMethod):
        return replace(_worded(error), reason="", headers={"Allow": ", ".join(error.allowed)})
    return _worded(error) if isinstance(error, APIException) else None


def _worded(error: APIException) -> Refusal:
    wait = getattr(error, "wait", None)
    return Refusal(
        status=error.status_code,
        data={"detail": error.detail},
        headers={"Retry-After": str(wait)} if wait else {},
        reason=REASONS.get(type(error), str(error.detail)),
    )


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
