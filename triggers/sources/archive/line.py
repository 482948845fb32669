"""An event as a line: a CloudEvent, with Wakeful's own columns in extension attributes that begin with `wakeful`.

Where a text of ours is no valid value of its attribute, it is percent-encoded, and `wakefulencoded` names the attribute.
"""

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, unquote
from uuid import UUID

from agents.kernel.event_names import INDEXED
from runs.api.strict_json import parse_json, require_storable
from triggers.sources.cloudevents.format import FORBIDDEN, LONGEST, URI_REFERENCE
from triggers.sources.http.timestamps import parse_timestamp

SHA256 = re.compile(r"(?:[0-9a-f]{64})?")
EMPTY = "%00"  # no text of PostgreSQL holds this character
IN_URI = "-._~:/?#[]@!$&'()*+,;="
TEXTS = ("id", "source", "type", "subject")


class InvalidLine(ValueError):
    """A line that is not an archived event; the message gives the reason."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """An archived event. `id` None: it comes from elsewhere, and gets an id and a source here. `seq` is its place in the export."""

    id: UUID | None
    seq: int | None = None
    source: str
    ce_source: str
    ce_id: str
    type: str
    subject: str = ""
    time: datetime | None = None
    received_at: datetime | None = None
    data: Any = None
    data_error: str = ""
    body: bytes | None = None
    body_sha256: str = ""
    headers: Mapping[str, str] | None = None
    payload_removed_at: datetime | None = None
    target_id: UUID | None = None
    root_id: UUID | None = None
    cause_event_id: UUID | None = None
    cause_run_id: UUID | None = None
    depth: int = 0
    chain: Sequence[str] = ()
    is_tainted: bool = False


def write(line: Line, data: str | None) -> bytes:
    """The line of an event, with `data` as its stored JSON text, so that no number changes."""
    own = {
        "id": line.id and str(line.id),
        "seq": line.seq,
        "source": line.source,
        "received": _instant(line.received_at),
        "removed": _instant(line.payload_removed_at),
        "sha256": line.body_sha256,
        "headers": json.dumps(line.headers) if line.headers else "",
        "error": line.data_error,
        "target": line.target_id and str(line.target_id),
        "root": str(line.root_id) if line.root_id != line.id else "",
        "causeevent": line.cause_event_id and str(line.cause_event_id),
        "causerun": line.cause_run_id and str(line.cause_run_id),
        "depth": line.depth,
        "chain": " ".join(line.chain),
        "tainted": line.is_tainted,
    }
    texts, encoded = _texts(line)
    whole: dict[str, Any] = {"specversion": "1.0", **texts, "time": _instant(line.time)}
    whole |= {f"wakeful{name}": value for name, value in {**own, "encoded": " ".join(encoded)}.items()}
    whole = {name: value for name, value in whole.items() if value}
    if data is not None and line.body is not None:
        whole["wakefulbody"] = base64.b64encode(line.body).decode()
    elif line.body is not None:
        whole["datacontenttype"] = "application/octet-stream"
        whole["data_base64"] = base64.b64encode(line.body).decode()
    text = json.dumps(whole, ensure_ascii=False, separators=(",", ":"))
    if data is not None:
        text = f'{text[:-1]},"datacontenttype":"application/json","data":{data}}}'
    return text.encode() + b"\n"


def read(text: bytes) -> Line:
    """Raises InvalidLine."""
    try:
        whole = parse_json(text)
        require_storable(whole)
        if not isinstance(whole, dict) or whole.get("specversion") != "1.0":
            raise InvalidLine("is not a CloudEvent 1.0")
        return _line(whole, text)
    except InvalidLine:
        raise
    except (ValueError, TypeError, AttributeError) as error:
        raise InvalidLine(str(error)[:300]) from None


def _line(whole: dict[str, Any], text: bytes) -> Line:
    own = {name.removeprefix("wakeful"): value for name, value in whole.items() if name.startswith("wakeful")}
    encoded = _text(own, "encoded").split()
    id, source, type, subject = (_decoded(name, _text(whole, name), encoded) for name in TEXTS)
    if len(source.encode()) + len(id.encode()) > INDEXED or len(subject.encode()) > INDEXED:
        raise InvalidLine(f"source and id, or subject, are longer than {INDEXED:,} bytes")
    if not SHA256.fullmatch(_text(own, "sha256")):
        raise InvalidLine("wakefulsha256 is no SHA-256 in hexadecimal")
    event_id = _uuid(own, "id")
    is_ours = event_id is not None
    raw = whole.get("data_base64", own.get("body"))
    headers = own.get("headers")
    return Line(
        id=event_id,
        source=_text(own, "source"),
        ce_source=source,
        ce_id=id,
        type=type,
        subject=subject,
        time=_time(whole, "time"),
        received_at=_time(own, "received"),
        data=whole.get("data"),
        data_error=_text(own, "error"),
        body=_bytes(raw) if raw is not None else None if is_ours else text.strip(),
        body_sha256=_text(own, "sha256"),
        headers=_headers(headers) if headers else None,
        payload_removed_at=_time(own, "removed"),
        target_id=_uuid(own, "target"),
        root_id=_uuid(own, "root"),
        cause_event_id=_uuid(own, "causeevent"),
        cause_run_id=_uuid(own, "causerun"),
        depth=_number(own.get("depth", 0)),
        chain=_text(own, "chain").split(),
        is_tainted=own.get("tainted") is True,
    )


def _texts(line: Line) -> tuple[dict[str, str], list[str]]:
    """The attributes of a CloudEvent, and the names of those that are percent-encoded."""
    texts = {"id": line.ce_id, "source": line.ce_source, "type": line.type, "subject": line.subject}
    encoded = [name for name, text in texts.items() if not _is_valid(name, text)]
    return {name: _encoded(name, text) if name in encoded else text for name, text in texts.items()}, encoded


def _is_valid(name: str, text: str) -> bool:
    if name == "source":
        return bool(URI_REFERENCE.fullmatch(text))
    return bool(text or name == "subject") and not FORBIDDEN.search(text)


def _encoded(name: str, text: str) -> str:
    return quote(text, safe=IN_URI if name == "source" else " ") or EMPTY


def _decoded(name: str, text: str, encoded: Sequence[str]) -> str:
    if not text and name != "subject":
        raise InvalidLine(f"{name} is missing")
    found = unquote(text, errors="strict").replace("\0", "") if name in encoded else text
    if len(found) > LONGEST[name]:
        raise InvalidLine(f"{name} is longer than {LONGEST[name]} characters")
    return found


def _instant(at: datetime | None) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z") if at else ""


def _time(whole: Mapping[str, Any], name: str) -> datetime | None:
    text = _text(whole, name)
    return parse_timestamp(text) if text else None


def _text(whole: Mapping[str, Any], name: str) -> str:
    text = whole.get(name)
    if text is not None and not isinstance(text, str):
        raise InvalidLine(f"{name} is not a text")
    return text or ""


def _uuid(own: Mapping[str, Any], name: str) -> UUID | None:
    text = _text(own, name)
    return UUID(text) if text else None


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**15:
        raise InvalidLine("wakefuldepth is not a number of 15 bits")
    return value


def _headers(text: Any) -> dict[str, str]:
    found = parse_json(text.encode()) if isinstance(text, str) else None
    if not isinstance(found, dict) or not all(isinstance(value, str | bool | int | float) for value in found.values()):
        raise InvalidLine("wakefulheaders is not a JSON object of texts")
    # Archives of earlier versions have `true` in those of changes of rows.
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in found.items()}
    require_storable(texts)
    return texts


def _bytes(encoded: Any) -> bytes:
    if not isinstance(encoded, str):
        raise InvalidLine("data_base64 is not a text")
    try:
        return base64.b64decode(encoded, validate=True)
    except binascii.Error:
        raise InvalidLine("data_base64 is not base64") from None
