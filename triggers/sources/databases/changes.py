"""Changes of rows as events: the shape of their data, which all databases share."""

import json
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from triggers.sources.databases.pgoutput import DEFAULT, FULL, UNCHANGED, Relation, Row, RowChange
from triggers.sources.databases.values import value_of

MOST_BYTES = 2**20  # of the values of an event
LONGEST_SUBJECT = 500  # characters, as in tables of our own; an index holds it
UPDATE, TRUNCATE, SNAPSHOT = "update", "truncate", "snapshot"


@dataclass(frozen=True)
class Table:
    """A relation as events name it. `types` are the built-in types of other types, `excluded` the columns that are never stored."""

    relation: Relation
    primary_key: tuple[str, ...] = ()
    types: Mapping[int, int] = field(default_factory=dict)
    excluded: Set[str] = frozenset()

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a row. The log names the primary key of the time of a change; the catalog has the one of now, and
        its order."""
        logged = tuple(column.name for column in self.relation.columns if column.is_key)
        if self.relation.identity == DEFAULT and logged and {*logged} != {*self.primary_key}:
            return logged
        names = {column.name for column in self.relation.columns}
        if self.primary_key and names.issuperset(self.primary_key):
            return self.primary_key
        if self.relation.identity == FULL:
            return ()
        return logged

    def name_of(self, alias: str) -> str:
        return f"{alias or self.relation.schema}.{self.relation.table}"


def data_of(table: Table, change: RowChange) -> dict[str, Any]:
    """`pk`, `old`, `new` and `changed`. None of them is guessed: `old` has what the log has, and `changed` of an update is null
    without the whole old row. `unchanged` and `omitted` name columns that `new` lacks: large values that the log leaves out because they
    did not change, and values that are too large for an event."""
    too_large = _too_large(table.relation, change)
    old = _values(table, change.old, too_large)
    new = _values(table, change.new, too_large)
    if old and new:  # the log has the large values in the old row
        new = {name: old[name] if value is UNCHANGED else value for name, value in new.items()}
    unchanged = [name for name, value in (new or {}).items() if value is UNCHANGED]
    known = new and {name: value for name, value in new.items() if value is not UNCHANGED}
    before = old if change.old is not None else _key_values(table, change.key)
    data = {
        "pk": pk_of(table, {**(before or {}), **(known or {})}),
        "old": before,
        "new": known,
        "changed": _changed(table.relation, change),
    }
    if unchanged:
        data["unchanged"] = unchanged
    if too_large:
        data["omitted"] = sorted(too_large)
    return data


def pk_of(table: Table, values: Mapping[str, Any]) -> Any:
    """The value of the key's only column; an object if it has several; None without a key."""
    key = {name: values.get(name) for name in table.key}
    return next(iter(key.values())) if len(key) == 1 else key or None


def subject_of(name: str, pk: Any) -> str:
    """The row: the name of its table, and the values of its key."""
    values = list(pk.values()) if isinstance(pk, dict) else [] if pk is None else [pk]
    key = ",".join(value if isinstance(value, str) else json.dumps(value) for value in values)
    return f"{name}/{key}"[:LONGEST_SUBJECT]


def _values(table: Table, row: Row | None, too_large: Iterable[str]) -> dict[str, Any] | None:
    if row is None:
        return None
    return {
        column.name: value_of(value, table.types.get(column.type, column.type)) if isinstance(value, bytes) else value
        for column, value in zip(table.relation.columns, row, strict=True)
        if column.name not in too_large and column.name not in table.excluded
    }


def _key_values(table: Table, row: Row | None) -> dict[str, Any] | None:
    """The values of the key columns; such a row has no others."""
    others = [column.name for column in table.relation.columns if not column.is_key]
    return _values(table, row, others)


def _changed(relation: Relation, change: RowChange) -> list[str] | None:
    """The columns whose values differ."""
    if change.operation != UPDATE:
        return []
    if change.new is None or change.old is None:
        return None
    pairs = zip(relation.columns, change.old, change.new, strict=True)
    return [column.name for column, old, new in pairs if new is not UNCHANGED and old != new]


def _too_large(relation: Relation, change: RowChange) -> set[str]:
    """The columns with the largest values, as few as make the rest fit into an event."""
    sizes = [0] * len(relation.columns)
    for row in (change.old, change.key, change.new):
        for place, value in enumerate(row or ()):
            sizes[place] += len(value) if isinstance(value, bytes) else 0
    left, found = sum(sizes), set[str]()
    for size, column in sorted(zip(sizes, (one.name for one in relation.columns), strict=True), reverse=True):
        if left <= MOST_BYTES:
            break
        found.add(column)
        left -= size
    return found
