"""Debezium's change events: JSON envelopes with or without their schema."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from triggers.sources.http.payload import Payload, read_payload
from triggers.sources.runner import Poison, Received

WORDS = {"c": "created", "u": "updated", "d": "deleted", "r": "read", "t": "truncated", "m": "message"}
SNAPSHOT = "r"
NO_ENVELOPE = "no change event of Debezium: a JSON object with “op” is expected"


class Skip:
    """A message that is no event by the settings."""


SKIP: Final = Skip()


def change_of(
    *, id: str, key: bytes, body: bytes, headers: Mapping[str, str], origin: str, snapshots: bool
) -> Received | Poison | Skip:
    """The change in a message. A tombstone is none: the deletion before it is."""
    if not body:
        return SKIP
    payload = read_payload(body)
    change = _unwrapped(payload.data)
    operation = change.get("op") if isinstance(change, dict) else None
    if not isinstance(change, dict) or not isinstance(operation, str) or operation not in WORDS:
        reason = payload.error or NO_ENVELOPE
        return Poison(id=id, origin=origin, reason=reason, body=body, headers=headers)
    if operation == SNAPSHOT and not snapshots:
        return SKIP
    return Received(
        id=id,
        origin=origin,
        type=f"{_table_of(change, origin)}.{WORDS[operation]}",
        subject=_subject(key),
        time=_time_of(change),
        payload=Payload(data=change),
        body=body,
        headers=headers,
    )


def _unwrapped(value: Any) -> Any:
    """The payload of an envelope with its schema."""
    if isinstance(value, dict) and "schema" in value and "payload" in value:
        return value["payload"]
    return value


def _table_of(change: dict[str, Any], origin: str) -> str:
    source = change.get("source")
    table = (source.get("table") or source.get("collection")) if isinstance(source, dict) else None
    return table if isinstance(table, str) and table else origin.rpartition(".")[2]


def _subject(key: bytes) -> str:
    """The primary key: its value if it has one column, else compact JSON."""
    fields = _unwrapped(read_payload(key).data) if key else None
    if isinstance(fields, dict) and len(fields) == 1:
        [fields] = fields.values()
    if fields is None:
        return key.decode(errors="replace")
    return fields if isinstance(fields, str) else json.dumps(fields, separators=(",", ":"), sort_keys=True)


def _time_of(change: dict[str, Any]) -> datetime | None:
    """When the database committed it, else when Debezium read it."""
    source = change.get("source")
    for at in (source.get("ts_ms") if isinstance(source, dict) else None, change.get("ts_ms")):
        if isinstance(at, int) and not isinstance(at, bool) and 0 < at < 10**14:
            return datetime.fromtimestamp(at / 1000, UTC)
    return None
