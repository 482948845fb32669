"""The data of an event of a file."""

import base64
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from uuid_utils.compat import uuid7

from triggers.sources.file_types import CHANGED, CREATED
from triggers.sources.files.ledger import Known
from triggers.sources.http.payload import Payload
from triggers.sources.runner import Received

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def event_of(
    type: str, directory: bytes, known: Known, *, previous: Known | None = None, once_per_content: bool = False
) -> Received:
    """The event of a file as it is now, and as it was."""
    path = _join(directory, known)
    data = {
        **named(path),
        "size": known.metadata.size,
        "fingerprint": known.fingerprint,
        "modified_at": _time(known.metadata.mtime_ns),
    }
    if previous:
        data["previous"] = {
            **named(_join(directory, previous)),
            "size": previous.metadata.size,
            "fingerprint": previous.fingerprint,
        }
    is_content = once_per_content and type in (CREATED, CHANGED) and known.fingerprint.startswith("sha256:")
    return Received(
        id=f"content:{known.fingerprint}" if is_content else str(uuid7()),
        type=type,
        subject=data["path"],
        payload=Payload(data=data),
    )


def named(path: bytes) -> Mapping[str, Any]:
    """A path as text, and exactly where it is none."""
    text = path.decode(errors="backslashreplace")
    return {"path": text} if text.encode() == path else {"path": text, "path_bytes": base64.b64encode(path).decode()}


def _join(directory: bytes, known: Known) -> bytes:
    return directory.rstrip(b"/") + b"/" + known.path.relative


def _time(nanoseconds: int) -> str | None:
    try:
        return (EPOCH + timedelta(microseconds=nanoseconds // 1000)).isoformat()
    except OverflowError:
        return None
