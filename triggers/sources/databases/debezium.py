"""Debezium's change events, wherever they come from: JSON envelopes with or without their schema."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Self

from triggers.sources.databases.changes import SNAPSHOT, TRUNCATE, UPDATE

OPERATIONS = {"c": "insert", "u": UPDATE, "d": "delete", "r": SNAPSHOT, "t": TRUNCATE, "m": "message"}
UNAVAILABLE = (
    "__debezium_unavailable_value"  # a large value that did not change, unless the connector has another word for it
)


@dataclass(frozen=True, kw_only=True)
class Envelope:
    """A change in Debezium's format."""

    operation: str
    before: Any
    after: Any
    source: Mapping[str, Any]
    time: datetime | None  # when the database committed it, else when Debezium read it

    @classmethod
    def read(cls, value: Any) -> Self | None:
        """None if it is no change event."""
        change = unwrapped(value)
        if not isinstance(change, dict) or not isinstance(change.get("op"), str) or change["op"] not in OPERATIONS:
            return None
        source = change.get("source")
        source = source if isinstance(source, dict) else {}
        return cls(
            operation=OPERATIONS[change["op"]],
            before=change.get("before"),
            after=change.get("after"),
            source=source,
            time=_time(source.get("ts_ms")) or _time(change.get("ts_ms")),
        )

    def name(self, topic: str = "") -> str:
        """`<schema>.<table>`; of databases without schemas that of the database."""
        table = _text(self.source.get("table")) or _text(self.source.get("collection")) or topic.rpartition(".")[2]
        schema = (
            _text(self.source.get("schema"))
            or _text(self.source.get("db"))
            or topic.rpartition(".")[0].rpartition(".")[2]
        )
        return f"{schema}.{table}" if schema else table

    def data(self, pk: Any) -> dict[str, Any]:
        """The shape of all changes of rows, and Debezium's own block about their source."""
        old, new = self.before, self.after
        unchanged = [name for name, value in new.items() if value == UNAVAILABLE] if isinstance(new, dict) else []
        if unchanged:
            before = old if isinstance(old, dict) else {}
            known = {name: value for name, value in before.items() if value != UNAVAILABLE}
            told = {name: known.get(name) if value == UNAVAILABLE else value for name, value in new.items()}
            new = {name: value for name, value in told.items() if name not in unchanged or name in known}
            unchanged = [name for name in unchanged if name not in new]
        data = {"pk": pk, "old": old, "new": new, "changed": self._changed(old, new), "source": dict(self.source)}
        return {**data, "unchanged": unchanged} if unchanged else data

    def digest(self) -> str:
        """The same for a change that Debezium sends again."""
        told = [self.operation, self.before, self.after, self.source]
        return sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()

    def _changed(self, old: Any, new: Any) -> list[str] | None:
        if self.operation != UPDATE:
            return []
        if not (isinstance(old, dict) and isinstance(new, dict)):
            return None
        return [name for name, value in new.items() if old.get(name) != value]


def unwrapped(value: Any) -> Any:
    """The payload of an envelope with its schema."""
    if isinstance(value, dict) and "schema" in value and "payload" in value:
        return value["payload"]
    return value


def pk_in(fields: Any) -> Any:
    """The value of the only column; an object if there are several; None without a key."""
    if isinstance(fields, dict) and len(fields) == 1:
        return next(iter(fields.values()))
    return None if fields == {} else fields


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _time(milliseconds: Any) -> datetime | None:
    is_number = isinstance(milliseconds, int) and not isinstance(milliseconds, bool)
    return datetime.fromtimestamp(milliseconds / 1000, UTC) if is_number and 0 < milliseconds < 10**14 else None
