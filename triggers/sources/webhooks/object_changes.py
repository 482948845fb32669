"""Changes of objects as their store notifies them: events of the types and with the data of those that a listing finds
(`files.object_store`), but one for each change. What a store reports beyond that keeps the store's own name as its type."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import unquote_plus

from agents.kernel.event_names import LONGEST_TYPE, too_long
from triggers.sources.file_types import CHANGED, CREATED, RENAMED, VANISHED
from triggers.sources.http.headers import storable
from triggers.sources.http.payload import Payload
from triggers.sources.http.timestamps import time_in
from triggers.sources.webhooks.naming import event_id, found_at, is_name, value_at

UNNAMED_S3 = "s3.event"
MOST_RECORDS = 1_000  # of a notification; S3 sends one, and a message of 256 KB has room for ten thousand forged ones
BLOBS = "Microsoft.Storage."
# Google's words for a change of an object.
FINALIZED, DELETED, ARCHIVED = "OBJECT_FINALIZE", "OBJECT_DELETE", "OBJECT_ARCHIVE"


@dataclass(frozen=True, kw_only=True)
class ObjectChange:
    """A change of one object. `id` is the same for each notification of it; empty: the notification does not name the change."""

    id: str = ""
    type: str
    path: str  # s3://bucket/key, gs://bucket/name, or the https address of a blob; empty: the notification names no object
    notification: str  # the change in the words of its store
    record: Mapping[str, Any]  # as the store wrote it
    size: int | None = None
    etag: str = ""
    version: str = ""  # of the content, where the store names one: a version id, or a generation
    modified_at: datetime | None = None  # when the change happened, by the clock of the store
    time: datetime | None = None
    previous: str = ""  # the path before, of a renamed one

    @property
    def subject(self) -> str:
        return self.path if self.path.isprintable() and not too_long(type="", subject=self.path) else ""

    @property
    def payload(self) -> Payload:
        data = {
            "path": self.path,
            "size": self.size,
            "fingerprint": f"etag:{self.etag}" if self.etag else "",
            "modified_at": self.modified_at.isoformat() if self.modified_at else None,
            "version": self.version,
            "notification": self.notification,
            "record": dict(self.record),
        }
        if self.previous:
            data["previous"] = {"path": self.previous}
        return Payload(data=data)

    @property
    def body(self) -> bytes:
        """The record alone: the part of a message with several."""
        return json.dumps(self.record, separators=(",", ":")).encode()


def changes_of_s3(content: Any) -> list[ObjectChange]:
    """The changes in a notification of S3, which may have several records; none: it is something else, or has too many."""
    records = found_at(content, "Records")
    if not isinstance(records, list) or len(records) > MOST_RECORDS:
        return []
    if not all(value_at(one, "eventSource") == "aws:s3" for one in records):
        return []
    return [_change_of_s3(record) for record in records]


def _change_of_s3(record: Mapping[str, Any]) -> ObjectChange:
    bucket = value_at(record, "s3.bucket.name") or ""
    key = storable(unquote_plus(value_at(record, "s3.object.key") or ""))
    sequencer = value_at(record, "s3.object.sequencer")
    version, etag = value_at(record, "s3.object.versionId") or "", value_at(record, "s3.object.eTag") or ""
    name = value_at(record, "eventName") or ""
    at = time_in(value_at(record, "eventTime"))
    return ObjectChange(
        # S3 may publish a change twice. Without a sequencer, the object alone does not name the change.
        id=event_id(json.dumps([bucket, key, name, version or etag or None, sequencer])) if sequencer else "",
        type=_type_of_s3(name, version),
        path=f"s3://{bucket}/{key}" if bucket and key else "",
        notification=name,
        record=record,
        size=_size(record, "s3.object.size"),
        etag=etag,
        version=version,
        modified_at=at,
        time=at,
    )


def _type_of_s3(name: str, version: str) -> str:
    family, _, what = name.partition(":")
    if family == "ObjectCreated":
        return CREATED  # also of an object that another one replaces: S3 does not say which it is
    if family in ("ObjectRemoved", "LifecycleExpiration") and (what == "DeleteMarkerCreated" or not version):
        return VANISHED
    # Such as the deletion of one version: whether the key has another one is not known.
    return _own(f"s3.{name}") if name else UNNAMED_S3


def change_of_gcs(attributes: Mapping[str, str], resource: Any) -> ObjectChange | None:
    """The change in a message of Cloud Storage; None: it is none. Its attributes name it, and are there for each format of the payload."""
    kind, bucket, name = (attributes.get(one, "") for one in ("eventType", "bucketId", "objectId"))
    generation = attributes.get("objectGeneration", "")
    if not (kind.startswith("OBJECT_") and bucket and name and generation and attributes.get("notificationConfig")):
        return None
    # Of one generation, only its metadata change more than once.
    step = value_at(resource, "metageneration") or attributes.get("eventTime", "")
    return ObjectChange(
        id=event_id(
            json.dumps([bucket, name, kind, generation, *([step] if kind == "OBJECT_METADATA_UPDATE" else [])])
        ),
        type=_type_of_gcs(kind, attributes),
        path=f"gs://{bucket}/{name}",
        notification=kind,
        record={"attributes": dict(attributes), "object": resource},
        size=_size(resource, "size"),
        etag=value_at(resource, "etag") or "",
        version=generation,
        modified_at=time_in(value_at(resource, "updated")),
        time=time_in(attributes.get("eventTime")),
    )


def _type_of_gcs(kind: str, attributes: Mapping[str, str]) -> str:
    if kind == FINALIZED:
        return CHANGED if attributes.get("overwroteGeneration") else CREATED
    if kind in (DELETED, ARCHIVED) and not attributes.get("overwrittenByGeneration"):
        return VANISHED
    return _own(f"gcs.{kind}")  # such as the deletion of what another object replaces: that one has its own event


def change_of_blob(event: Mapping[str, Any], *, type: str, time: datetime | None) -> ObjectChange | None:
    """The change of a blob in an event of Event Grid, whose id names the change; None: it is none."""
    data = event.get("data")
    path = value_at(data, "destinationUrl") or value_at(data, "url")
    if not type.startswith(BLOBS) or not path:
        return None
    known = {"BlobCreated": CREATED, "BlobDeleted": VANISHED, "BlobRenamed": RENAMED}
    return ObjectChange(
        type=known.get(type.removeprefix(BLOBS)) or _own(type),
        path=storable(path),
        notification=type,
        record=event,
        size=_size(data, "contentLength"),
        etag=value_at(data, "eTag") or value_at(data, "etag") or "",
        modified_at=time,
        time=time,
        previous=storable(value_at(data, "sourceUrl") or ""),
    )


def _own(name: str) -> str:
    """The store's own name as a type."""
    return name if is_name(name) else name.partition(".")[0][:LONGEST_TYPE] + ".event"


def _size(record: Any, path: str) -> int | None:
    text = value_at(record, path)
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 19 else None
