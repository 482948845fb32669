"""Find the id and type of an event in a delivery."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import uuid4

from agents.kernel.event_names import INDEXED
from runs.api.strict_json import is_storable
from triggers.sources.http.headers import as_text
from triggers.sources.http.payload import Payload
from triggers.sources.http.timestamps import time_in
from triggers.sources.settings import header_name, json_path, setting
from triggers.sources.webhooks.proof import Proof
from triggers.sources.webhooks.scheme import Delivery, Description, Sample

LONGEST_NAME = 255  # characters; PostgreSQL's index takes about 2,700 bytes of source and id together
UNNAMED_TYPE = "webhook.received"


@dataclass(frozen=True, kw_only=True)
class Naming:
    """Settings for senders without fixed places for id and type."""

    id_path: str = setting(
        "", "Id in the body", "Path of the event's id in the JSON body, such as data.id.", check=json_path
    )
    id_header: str = setting(
        "",
        "Id header",
        "Header with the event's id, used if the body has none. A header that is not signed can be changed: a leaked delivery "
        "can be sent again with another id. Prefer an id in the body, or {id} in the signed text.",
        check=header_name,
    )
    type_path: str = setting("", "Type in the body", "Path of the event's type in the JSON body.", check=json_path)
    type_header: str = setting(
        "", "Type header", f"Header with the event's type. Without one it is {UNNAMED_TYPE}.", check=header_name
    )
    without_id: str = setting(
        "new",
        "Without an id",
        "For a delivery without an id: “new” treats each delivery as a new event, including retries; “body” treats equal bodies "
        "as one event, including identical pings. With a signed timestamp, equal bodies and timestamps are one event.",
        choices=("new", "body"),
    )


def describe_by(naming: Naming, delivery: Delivery, proof: Proof, payload: Payload) -> Description:
    """The event, named by the settings; the body, which is signed, takes precedence over the headers."""
    id_ = value_at(payload.data, naming.id_path) or header_text(delivery, naming.id_header)
    type_ = value_at(payload.data, naming.type_path) or header_text(delivery, naming.type_header)
    return Description(
        id=event_id(id_) if id_ else _stand_in(naming, delivery, proof),
        type=event_type(type_) or UNNAMED_TYPE,
        payload=payload,
    )


def sample_by(naming: Naming) -> Sample:
    """A JSON delivery with id and type where the settings say."""
    # An id of digits alone contains no separator of a signed text.
    id_, type_ = str(uuid4().int), "test"
    data: dict[str, Any] = {"message": "A test event from Wakeful."}
    for path, value in ((naming.id_path, id_), (naming.type_path, type_)):
        if path:
            _put(data, path, value)
    named = {naming.id_header: id_, naming.type_header: type_, "Content-Type": "application/json"}
    return Sample(body=json.dumps(data).encode(), headers={name: value for name, value in named.items() if name})


def event_id(text: str) -> str:
    """The id to store: itself, or its hash if it is too long or not printable."""
    return text if is_name(text) else _digest(text.encode("utf-8", "surrogatepass"))


def event_origin(text: str, id: str) -> str:
    """The origin to store: itself, or its hash if it cannot be stored as text or is too long for the index that it shares with the id."""
    is_short = len(text.encode("utf-8", "surrogatepass")) + len(id.encode()) <= INDEXED
    return text if is_short and is_storable(text) else _digest(text.encode("utf-8", "surrogatepass"))


def body_id(delivery: Delivery) -> str:
    """An id for a delivery that has none and whose sender repeats it with equal bytes."""
    return _digest(delivery.endpoint.encode(), delivery.body)


def event_type(text: str | None) -> str | None:
    return text if text and is_name(text) else None


def is_name(text: str) -> bool:
    return 0 < len(text) <= LONGEST_NAME and text.isprintable()


def value_at(data: Any, path: str) -> str | None:
    """The text or whole number at a dotted path, as text."""
    data = found_at(data, path) if path else None
    if isinstance(data, int) and not isinstance(data, bool):
        return str(data)
    return data if isinstance(data, str) and data else None


def found_at(data: Any, path: str) -> Any:
    """The value at a dotted path, or None. The empty path leads to the data itself."""
    for step in filter(None, path.split(".")):
        data = _member(data, step)
    return data


def subject_at(data: Any, *paths: str) -> str:
    """The first usable name at one of these dotted paths, or an empty text."""
    return next((text for path in paths if (text := value_at(data, path)) and is_name(text)), "")


def time_at(data: Any, path: str) -> datetime | None:
    """The time at a dotted path: RFC 3339, or Unix time in seconds or milliseconds."""
    return time_in(value_at(data, path))


def header_text(delivery: Delivery, name: str) -> str | None:
    value = delivery.headers.get(name) if name else None
    return as_text(value) if value else None


def _put(data: dict[str, Any], path: str, value: str) -> None:
    *parents, last = path.split(".")
    for step in parents:
        if not isinstance(data.get(step), dict):
            data[step] = {}
        data = data[step]
    data[last] = value


def _member(data: Any, step: str) -> Any:
    if isinstance(data, dict):
        return data.get(step)
    if isinstance(data, list) and step.isascii() and step.isdigit() and len(step) < 10:
        return data[int(step)] if int(step) < len(data) else None
    return None


def _stand_in(naming: Naming, delivery: Delivery, proof: Proof) -> str:
    # Not the bare body by default: a sender's second, identical ping would count as a duplicate.
    if proof.signed_at is None and naming.without_id == "new":
        return str(delivery.id)
    signed_at = int(proof.signed_at.timestamp()) if proof.signed_at else ""
    return _digest(delivery.endpoint.encode(), str(signed_at).encode(), delivery.body)


def _digest(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in _framed(parts):
        digest.update(part)
    return f"sha256:{digest.hexdigest()}"


def _framed(parts: Sequence[bytes]) -> list[bytes]:
    # With lengths between the parts, no two lists of parts have the same bytes.
    return [piece for part in parts for piece in (len(part).to_bytes(8, "big"), part)]
