"""CloudEvents 1.0 over HTTP: structured, binary and batched content mode (HTTP binding §3)."""

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from urllib.parse import unquote_to_bytes

from agents.kernel.event_names import INDEXED, LONGEST_SUBJECT, LONGEST_TYPE
from agents.kernel.reserved_types import is_reserved, refusal
from runs.api.strict_json import Unreadable, is_storable, parse_json, require_storable
from triggers.sources.http.headers import Headers
from triggers.sources.http.payload import Payload
from triggers.sources.http.timestamps import parse_timestamp

STRUCTURED = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"
MOST_EVENTS = 1000
# Source and id are an entry of an index together; a source is ASCII.
LONGEST = {"id": 255, "type": LONGEST_TYPE, "source": 1024, "subject": LONGEST_SUBJECT}
LONGEST_ELSE = 4096

NAME = re.compile(r"[a-z0-9]{1,100}")
URI_REFERENCE = re.compile(r"(?:[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=]|%[0-9A-Fa-f]{2})+")
URI = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:" + URI_REFERENCE.pattern)
MEDIA_TYPE = re.compile(r"[\w!#$&^.+\-]+/[\w!#$&^.+\-]+\s*(?:;[ -~]*)?", re.ASCII)
# An unterminated quote is matched to the end and left unchanged: retrying at each of its quotes would take quadratic time.
QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)("|\\?\Z)')
LONGEST_HEADER = 4 * 3 * LONGEST_ELSE  # bytes: UTF-8, percent-encoded
STRAY_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
INTEGERS = range(-(2**31), 2**31)
# CloudEvents "Type System", String: no control characters, no unpaired surrogates, no noncharacters.
NONCHARACTERS = "\ufdd0-\ufdef" + "".join(chr(plane << 16 | last) for plane in range(17) for last in (0xFFFE, 0xFFFF))
FORBIDDEN = re.compile(f"[\0-\x1f\x7f-\x9f\ud800-\udfff{NONCHARACTERS}]")


class UnsupportedMedia(Exception):
    """Not a CloudEvent in a supported format; the message lists the supported ones."""


class InvalidEvent(Exception):
    """A CloudEvent that violates the specification, or that PostgreSQL cannot store."""

    def __init__(self, field: str, problem: str, *, index: int | None = None) -> None:
        where = field if index is None else f"event {index}, {field}"
        super().__init__(f"{where}: {problem}")
        self.field = field
        self.problem = problem
        self.index = index


@dataclass(frozen=True, kw_only=True)
class CloudEvent:
    """A valid event; `body` is the received body."""

    id: str
    source: str
    type: str
    subject: str = ""
    time: datetime | None = None
    datacontenttype: str = ""
    dataschema: str = ""
    extensions: Mapping[str, str | int | bool]
    data: Any = None
    data_error: str = ""
    body: bytes


@dataclass(frozen=True, kw_only=True)
class Message:
    """The events of a request. A batch is answered with a list, even if it holds one event."""

    events: tuple[CloudEvent, ...]
    is_batch: bool


def read_message(headers: Headers, body: bytes) -> Message:
    """The events of a request, all or none. Raises only InvalidEvent and UnsupportedMedia."""
    media_type = headers.media_type()
    if media_type == BATCH:
        return Message(events=_batch(body), is_batch=True)
    if media_type == STRUCTURED:
        return Message(events=(_structured(_parse(body), body),), is_batch=False)
    # The prefix alone marks a CloudEvent (HTTP binding §3), but in an unsupported format.
    if media_type.startswith("application/cloudevents") or not any(name.startswith("ce-") for name in headers):
        raise UnsupportedMedia(
            f"Send a CloudEvent 1.0: Content-Type {STRUCTURED} or {BATCH}, "
            "or the plain data with the headers ce-specversion, ce-id, ce-source and ce-type."
        )
    return Message(events=(_binary(headers, body),), is_batch=False)


def _batch(body: bytes) -> tuple[CloudEvent, ...]:
    items = _parse(body)
    if not isinstance(items, list):
        raise InvalidEvent("body", "must be a JSON array of CloudEvents")
    if len(items) > MOST_EVENTS:
        raise InvalidEvent("body", f"holds {len(items)} events; send at most {MOST_EVENTS} at once")
    return tuple(_batch_item(index, item) for index, item in enumerate(items))


def _batch_item(index: int, item: Any) -> CloudEvent:
    try:
        event = _structured(item, b"")
    except InvalidEvent as error:
        raise InvalidEvent(error.field, error.problem, index=index) from None
    # Only its own part of the body, so that the same event in another batch has an equal body.
    return replace(event, body=json.dumps(item, separators=(",", ":")).encode())


def _parse(body: bytes) -> Any:
    try:
        return parse_json(body)
    except Unreadable as reason:
        raise InvalidEvent("body", str(reason)) from None


def _structured(envelope: Any, body: bytes) -> CloudEvent:
    if not isinstance(envelope, dict):
        raise InvalidEvent("body", "must be a JSON object")
    attributes = {name: value for name, value in envelope.items() if name not in ("data", "data_base64")}
    return _event(attributes, _structured_data(envelope), body)


def _structured_data(envelope: dict[str, Any]) -> Payload:
    """JSON format §3.1.2."""
    content_type, encoded = envelope.get("datacontenttype"), envelope.get("data_base64")
    if encoded is not None:
        if envelope.get("data") is not None:
            raise InvalidEvent("data_base64", "cannot be combined with data; send one of the two")
        return _decode(content_type, _base64(encoded), field="data_base64")
    data = envelope.get("data")
    if data is not None and not _is_json(content_type) and not isinstance(data, str):
        raise InvalidEvent("data", f"must be a string, as {content_type} is not JSON")
    return Payload(data=_storable("data", data))


def _binary(headers: Headers, body: bytes) -> CloudEvent:
    attributes: dict[str, Any] = {
        name.removeprefix("ce-"): _header_value(name, value)
        for name, value in headers.items()
        if name.startswith("ce-")
    }
    if "datacontenttype" in attributes:
        raise InvalidEvent("datacontenttype", "must be sent as Content-Type in binary mode")
    if headers.get("content-type"):
        attributes["datacontenttype"] = headers["content-type"].decode("latin-1")
    return _event(attributes, _decode(attributes.get("datacontenttype"), body, field="data"), body)


def _header_value(name: str, value: bytes) -> str:
    """HTTP binding §3.1.3.2: undo double quotes, then one round of percent-encoding, which must give UTF-8."""
    if len(value) > LONGEST_HEADER:
        raise InvalidEvent(name.removeprefix("ce-"), f"is longer than {LONGEST_ELSE} characters")
    try:
        text = QUOTED.sub(_unquoted, value.decode())
        if STRAY_PERCENT.search(text):
            raise InvalidEvent(name.removeprefix("ce-"), "has a % that is not percent-encoded as %25")
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise InvalidEvent(name.removeprefix("ce-"), "must be percent-encoded UTF-8") from None


def _unquoted(quoted: re.Match[str]) -> str:
    return re.sub(r"\\(.)", r"\1", quoted[1]) if quoted[2] == '"' else quoted[0]


def _event(attributes: dict[str, Any], data: Payload, body: bytes) -> CloudEvent:
    for name, value in attributes.items():
        _check_attribute(name, value)
    # JSON format §2.2: null means unset.
    attributes = {name: value for name, value in attributes.items() if value is not None}
    for name in ("specversion", "id", "source", "type"):
        _required(attributes, name)
    if attributes.pop("specversion") != "1.0":
        raise InvalidEvent("specversion", 'must be "1.0"')
    if is_reserved(attributes["type"]):
        raise InvalidEvent("type", refusal(attributes["type"]))
    return CloudEvent(
        id=attributes.pop("id"),
        source=_matching(attributes, "source", URI_REFERENCE, "a URI reference (RFC 3986)"),
        type=attributes.pop("type"),
        subject=_optional(attributes, "subject"),
        time=_time(attributes),
        datacontenttype=_matching(attributes, "datacontenttype", MEDIA_TYPE, "a media type such as application/json"),
        dataschema=_matching(attributes, "dataschema", URI, "an absolute URI (RFC 3986)"),
        extensions=attributes,
        data=data.data,
        data_error=data.error,
        body=body,
    )


def _check_attribute(name: str, value: Any) -> None:
    if not NAME.fullmatch(name) or name == "data":
        shown = ascii(name[:100])
        raise InvalidEvent(shown[1:-1], f"{shown} is not a valid attribute name; use lower-case letters a-z and digits")
    if isinstance(value, str):
        _check_text(name, value)
    elif isinstance(value, int) and not isinstance(value, bool) and value not in INTEGERS:
        raise InvalidEvent(name, "must be an integer of 32 bits; send larger ones as a string")
    elif not isinstance(value, int | None):
        raise InvalidEvent(name, "must be a string, a boolean or an integer")


def _check_text(name: str, value: str) -> None:
    longest = LONGEST.get(name, LONGEST_ELSE)
    if len(value) > longest:
        raise InvalidEvent(name, f"is longer than {longest} characters")
    if FORBIDDEN.search(value):
        raise InvalidEvent(name, "contains control characters, surrogates or noncharacters")
    if name in LONGEST and len(value.encode()) > INDEXED:
        raise InvalidEvent(name, f"is longer than {INDEXED:,} bytes")


def _required(attributes: dict[str, Any], name: str) -> None:
    if name not in attributes:
        raise InvalidEvent(name, "is required")
    if not isinstance(attributes[name], str) or not attributes[name]:
        raise InvalidEvent(name, "must be a non-empty string")


def _optional(attributes: dict[str, Any], name: str) -> str:
    if name not in attributes:
        return ""
    _required(attributes, name)
    text: str = attributes.pop(name)
    return text


def _matching(attributes: dict[str, Any], name: str, pattern: re.Pattern[str], expected: str) -> str:
    text = _optional(attributes, name)
    if text and not pattern.fullmatch(text):
        raise InvalidEvent(name, f"must be {expected}")
    return text


def _time(attributes: dict[str, Any]) -> datetime | None:
    text = _optional(attributes, "time")
    try:
        return parse_timestamp(text) if text else None
    except ValueError as error:
        raise InvalidEvent("time", str(error)) from None


def _is_json(content_type: Any) -> bool:
    """JSON format §3.1.1: */json and */*+json; absent means application/json."""
    if not isinstance(content_type, str):
        return True
    subtype = content_type.partition(";")[0].strip().lower().partition("/")[2]
    return subtype == "json" or subtype.endswith("+json")


def _decode(content_type: Any, raw: bytes, *, field: str) -> Payload:
    """Bytes as data: JSON or text by content type, else kept raw only."""
    if not raw:
        return Payload()
    if _is_json(content_type):
        try:
            return Payload(data=_storable(field, parse_json(raw)))
        except Unreadable as reason:
            raise InvalidEvent(field, str(reason)) from None
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return Payload(error=f"kept raw: {content_type}")
    return Payload(data=text) if is_storable(text) else Payload(error=f"kept raw: {content_type} with U+0000")


def _storable(field: str, data: Any) -> Any:
    try:
        require_storable(data)
    except Unreadable as reason:
        raise InvalidEvent(field, str(reason)) from None
    return data


def _base64(encoded: Any) -> bytes:
    if not isinstance(encoded, str):
        raise InvalidEvent("data_base64", "must be a string")
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidEvent("data_base64", "must be base64") from None
