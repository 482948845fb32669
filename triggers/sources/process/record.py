"""Record a batch: its gaps, its events, its poison and its position, in one transaction of the source's owner."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import DataError, OperationalError, transaction
from psycopg.types.json import Jsonb

from runs.db.sql import execute
from runs.failpoints import failpoint
from triggers.accept import Incoming, ReservedType, accept
from triggers.sources.continuity import Gap, Marks, compare, dump
from triggers.sources.http.headers import redact_texts, storable
from triggers.sources.process.gaps import keep_gaps
from triggers.sources.process.poison import keep
from triggers.sources.runner import Batch, Poison, Received, origin_of
from triggers.sources.webhooks.naming import event_id, event_origin, event_type

UNNAMED_TYPE = "message.received"
LIMIT_EXCEEDED = "54"  # class of SQLSTATE, such as for a subject that is too long for its index

# The first statement of the transaction: it locks the row, so that there is no other owner until the commit. A version before marks
# moves the position alone: its md5 shows whether the marks are still of it.
FENCE = """
UPDATE triggers_reading SET
  position = coalesce(%(position)s::jsonb, position),
  marks = CASE WHEN %(marks)s::jsonb IS NULL THEN marks ELSE jsonb_build_object(
    'of', md5(coalesce(%(position)s::jsonb, position)::text), 'streams', %(marks)s::jsonb) END,
  lag = coalesce(%(lag)s::bigint, lag),
  read_at = CASE WHEN %(count)s::int > 0 THEN clock_timestamp() ELSE read_at END, read_count = read_count + %(count)s::int,
  failing_since = CASE WHEN %(failed)s::boolean THEN failing_since END,
  failures = CASE WHEN %(failed)s::boolean THEN failures ELSE 0 END,
  error = CASE WHEN %(failed)s::boolean THEN error ELSE '' END, remedy = CASE WHEN %(failed)s::boolean THEN remedy ELSE '' END
WHERE source_id = %(source)s::uuid AND owner_id = %(owner)s::uuid AND epoch = %(epoch)s::bigint
"""


@dataclass(frozen=True, kw_only=True)
class Mandate:
    """The ownership under which a batch was read."""

    source_id: UUID
    slug: str
    owner: UUID
    epoch: int

    @property
    def names(self) -> dict[str, Any]:
        return {"source": self.source_id, "owner": self.owner, "epoch": self.epoch}


class NotOwned(Exception):
    """The source has another owner, or none; nothing was written."""


def record(mandate: Mandate, batch: Batch, marks: Marks) -> Marks:
    """The marks after the batch; `marks` are those of the last one. Raises NotOwned, and database errors that are not those of a
    message; then nothing is recorded."""
    messages = [_checked(message) for message in batch.messages]
    found, after = compare(marks, batch.spans)
    gaps = [*found, *batch.gaps]
    try:
        with transaction.atomic():
            _fence(mandate, batch, after)
            failpoint("source_fenced")
            keep_gaps(mandate.source_id, mandate.slug, batch.id, gaps)
            accept([_incoming(mandate, message) for message in messages if isinstance(message, Received)])
            keep(mandate.source_id, mandate.slug, [message for message in messages if isinstance(message, Poison)])
            if batch.keep:
                batch.keep()
    except (ReservedType, DataError, OperationalError) as error:
        if not _is_of_message(error):
            raise
        _record_each(mandate, batch, after, gaps, messages)
    failpoint("source_recorded")
    return after


def _record_each(
    mandate: Mandate, batch: Batch, marks: Marks, gaps: Sequence[Gap], messages: Sequence[Received | Poison]
) -> None:
    """Like `record`, but a message that the database refuses becomes poison."""
    with transaction.atomic():
        _fence(mandate, batch, marks)
        keep_gaps(mandate.source_id, mandate.slug, batch.id, gaps)
        for message in messages:
            poison = message if isinstance(message, Poison) else _refused(mandate, message)
            if poison:
                keep(mandate.source_id, mandate.slug, [poison])
        if batch.keep:
            batch.keep()


def _refused(mandate: Mandate, message: Received) -> Poison | None:
    """Record the message, unless it is refused."""
    try:
        with transaction.atomic():
            accept([_incoming(mandate, message)])
    except (ReservedType, DataError, OperationalError) as error:
        if not _is_of_message(error):
            raise
        return _as_poison(message, str(error).strip().splitlines()[0])
    return None


def _is_of_message(error: Exception) -> bool:
    """Would it be refused again, while others are accepted?"""
    sqlstate = getattr(error.__cause__, "sqlstate", None) or ""
    return isinstance(error, (ReservedType, DataError)) or sqlstate.startswith(LIMIT_EXCEEDED)


def _fence(mandate: Mandate, batch: Batch, marks: Marks) -> None:
    position = None if batch.position is None else Jsonb(batch.position)
    are_new = bool(marks) and (bool(batch.spans) or batch.position is not None)
    names = {
        **mandate.names,
        "position": position,
        "marks": Jsonb(dump(marks)) if are_new else None,
        "lag": batch.lag,
        "count": len(batch.messages),
    }
    names["failed"] = batch.failure is not None
    if not execute(FENCE, names):
        raise NotOwned


def _checked(message: Received | Poison) -> Received | Poison:
    if isinstance(message, Received) and message.body and len(message.body) > settings.WAKEFUL_MAX_BODY:
        return _as_poison(message, f"it has {len(message.body):,} bytes, more than WAKEFUL_MAX_BODY")
    return message


def _as_poison(message: Received, reason: str) -> Poison:
    body = message.body or b""
    return Poison(id=message.id, origin=message.origin, reason=reason, body=body, headers=message.headers)


def _incoming(mandate: Mandate, message: Received) -> Incoming:
    id = event_id(message.id)
    return Incoming(
        source_id=mandate.source_id,
        ce_source=event_origin(message.origin or origin_of(mandate.slug), id),
        ce_id=id,
        type=event_type(message.type) or UNNAMED_TYPE,
        subject=storable(message.subject),
        time=message.time,
        data=message.payload.data,
        data_error=storable(message.payload.error),
        body=message.body,
        headers=redact_texts(message.headers),
    )
