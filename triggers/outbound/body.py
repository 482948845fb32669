"""An event as a CloudEvent in the JSON format, which is the body of its deliveries."""

import base64
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from runs.db.sql import fetch_as

LARGEST = 2**20  # bytes; receivers refuse some 256 KiB to 1 MiB
CONTENT_TYPE = "application/cloudevents+json"
DEPTH = "wakefuldepth"  # links of the causal chain so far; a source that gets the event back goes on counting
READ = """
SELECT event.id, event.ce_id, event.ce_source, event.type, event.subject, coalesce(event.time, event.received_at) AS time,
       source.slug AS source, event.depth, event.is_tainted, event.payload_removed_at IS NOT NULL AS is_removed,
       CASE WHEN octet_length(event.data::text) <= %(largest)s::int THEN event.data::text END AS data,
       CASE WHEN event.data IS NULL AND octet_length(event.body) <= %(largest)s::int THEN event.body END AS body,
       coalesce(octet_length(event.data::text), octet_length(event.body), 0) AS bytes,
       coalesce(event.headers->>'content-type', '') AS content_type
FROM triggers_event event JOIN triggers_source source ON source.id = event.source_id
WHERE event.id = %(id)s::uuid
"""


class Unsendable(Exception):
    """The event cannot be sent; the message gives the reason."""


@dataclass(frozen=True, kw_only=True)
class Said:
    """The columns of an event that its body is made of. `data` is JSON text; `body` holds what is no JSON."""

    id: UUID
    ce_id: str
    ce_source: str
    type: str
    subject: str
    time: datetime
    source: str
    depth: int
    is_tainted: bool
    is_removed: bool
    data: str | None
    body: bytes | None
    bytes: int
    content_type: str


def body_of(event_id: UUID) -> tuple[bytes, int]:
    """The body, and the depth that it names. Raises Unsendable."""
    found = fetch_as(Said, READ, {"id": event_id, "largest": LARGEST})
    if not found or found[0].is_removed:
        raise Unsendable("the event's payload was removed")
    [event] = found
    if event.bytes > LARGEST:
        raise Unsendable(f"the event has {event.bytes:,} bytes; at most {LARGEST:,} are sent")
    return as_cloudevent(event), event.depth + 1


def as_cloudevent(event: Said) -> bytes:
    """Its id and source are the sender's. Our own id of it and the source here are extensions."""
    attributes = {
        "specversion": "1.0",
        "id": event.ce_id,
        "source": event.ce_source,
        "type": event.type,
        "time": event.time.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        "wakefulid": str(event.id),
        "wakefulsource": event.source,
        DEPTH: event.depth + 1,
    }
    if event.subject:
        attributes["subject"] = event.subject
    if event.is_tainted:
        attributes["wakefultainted"] = True
    if event.data is not None:
        attributes["datacontenttype"] = "application/json"
        # The text as it is stored: nothing is lost of its numbers.
        return f'{json.dumps(attributes, ensure_ascii=False)[:-1]}, "data": {event.data}}}'.encode()
    if event.body is not None:
        attributes["datacontenttype"] = event.content_type or "application/octet-stream"
        attributes["data_base64"] = base64.b64encode(event.body).decode()
    return json.dumps(attributes, ensure_ascii=False).encode()
