"""The functions and triggers that write the events of a watched table, in the transaction of the change.

A trigger sees the rows of a whole statement, so that the events of 100,000 rows are one INSERT. The functions take columns by
their names from the rows as JSON: a column that is added, renamed or dropped later breaks no write. They write what
`triggers.accept` writes: each change is an event with an identity of its own, so there are no duplicates to look for.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from uuid import UUID

from psycopg import sql

from triggers.sources.databases.tables.watched import TableSettings, Watched
from triggers.sources.runner import origin_of

PREFIX = "wakeful_change_"  # of everything that is made
MOST_BYTES = 256 * 1024  # of a row's values; above, the event has the primary key alone
OLD, NEW = "wakeful_old_rows", "wakeful_new_rows"
# For as long as a function runs. Plans are made once and kept, at a statement of one row perhaps: a nested loop over the two
# tables of a later statement with 100,000 rows would not end.
SETTINGS = {"search_path": "{schema}, pg_catalog, pg_temp", "timezone": "UTC", "enable_nestloop": "off", "jit": "off"}


@dataclass(frozen=True, kw_only=True)
class Function:
    """A trigger function, and the event of a table that fires it."""

    name: str
    body: str
    fires: str  # CREATE TRIGGER … {fires} ON table {tables} FOR EACH STATEMENT
    tables: str = ""


def name_of(source_id: UUID, operation: str) -> str:
    return f"{PREFIX}{source_id.hex}_{operation}"


def functions(source_id: UUID, slug: str, settings: TableSettings, watched: Watched) -> Iterator[Function]:
    """What the settings ask for; TRUNCATE deletes."""
    write = _Writer(source_id, slug, settings, watched)
    if "insert" in settings.operations:
        yield Function(
            name=name_of(source_id, "insert"),
            body=write.body("insert", NEW, write.one("new", "insert", NEW)),
            fires="AFTER INSERT",
            tables=f"REFERENCING NEW TABLE AS {NEW}",
        )
    if "update" in settings.operations:
        yield Function(
            name=name_of(source_id, "update"),
            body=write.body("update", NEW, write.update()),
            fires="AFTER UPDATE",
            tables=f"REFERENCING OLD TABLE AS {OLD} NEW TABLE AS {NEW}",
        )
    if "delete" in settings.operations:
        yield Function(
            name=name_of(source_id, "delete"),
            body=write.body("delete", OLD, write.one("old", "delete", OLD)),
            fires="AFTER DELETE",
            tables=f"REFERENCING OLD TABLE AS {OLD}",
        )
        yield Function(name=name_of(source_id, "truncate"), body=write.truncate(), fires="BEFORE TRUNCATE")


PLACE = re.compile(r"\{(\w+)\}")  # in a template
IDLE = "BEGIN RETURN NULL; END"  # of a function whose source is off, until its triggers can be dropped


def create_function(schema: str, name: str, body: str) -> str:
    settings = " ".join(f"SET {key} = {value.replace('{schema}', quoted(schema))}" for key, value in SETTINGS.items())
    function = f"{quoted(schema, name)}()"
    # A trigger needs no right to call its function, and another role should have none.
    return (
        f"CREATE OR REPLACE FUNCTION {function} RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER {settings} "
        f"AS {literal(body)}; REVOKE ALL ON FUNCTION {function} FROM PUBLIC"
    )


def create_trigger(schema: str, function: Function, relation: str) -> str:
    """`relation` is a quoted name."""
    return (
        f"CREATE OR REPLACE TRIGGER {quoted(function.name)} {function.fires} ON {relation} {function.tables} "
        f"FOR EACH STATEMENT EXECUTE FUNCTION {quoted(schema, function.name)}()"
    )


class _Writer:
    def __init__(self, source_id: UUID, slug: str, settings: TableSettings, watched: Watched) -> None:
        self.settings = settings
        self.watched = watched
        self.values = terms(source_id, slug, settings, watched)

    def body(self, operation: str, rows: str, insert: str) -> str:
        guard = self._filled("guard", operation, rows=rows) if self.watched.condition else ""
        return self._filled("capture", operation, rows=rows, insert=insert, guard=guard)

    def _filled(self, name: str, operation: str, **values: str) -> str:
        about = "TG_TABLE_SCHEMA || '.' || TG_TABLE_NAME"
        # One of a session and minute: no session waits for another, and a fault that lasts fills no table.
        message = f"concat_ws(' ', {literal(operation)}, pg_backend_pid(), date_trunc('minute', now()))"
        return filled(name, {**self.values, "poison": f"{self.values['source']}, {about}, {message}", **values})

    def one(self, side: str, operation: str, rows: str) -> str:
        """Inserts or deletes."""
        other = "NULL::jsonb"
        old, new = (other, "to_jsonb(wakeful_row)") if side == "new" else ("to_jsonb(wakeful_row)", other)
        changes = (
            f"SELECT row_number() OVER () AS at, {old} AS old, {new} AS new, '{{}}'::text[] AS changed "  # noqa: S608  (our own parts)
            f"FROM {rows} AS wakeful_row WHERE {self.values['condition']}"
        )
        return self._insert(operation, side, changes, order="", is_first="at = 1")  # the table of rows has their order

    def update(self) -> str:
        watched, excluded = self.watched.watched, self.values["excluded"]
        if watched:
            differs = " OR ".join(f"old -> {literal(name)} IS DISTINCT FROM new -> {literal(name)}" for name in watched)
            # One that is gone meanwhile: rather an event too many.
            differs = f"{differs} OR NOT new ?& {_array(watched)}"
        else:
            differs = f"old - {excluded} <> new - {excluded}"
        hidden = [name for name in self.watched.excluded if name not in watched]
        changes = filled("update", {**self.values, "seen_new": f"new - {_array(hidden)}", "differs": differs})
        is_first = "row_number() OVER (ORDER BY at) = 1"
        return self._insert("update", "new", changes, order="ORDER BY at", is_first=is_first)

    def truncate(self) -> str:
        """The rows of partitions are those of their own triggers. The statement is made when it runs: there is no table of rows."""
        return self._filled("truncate", "delete", insert=literal(self.one("old", "delete", "ONLY wakeful_truncated")))

    def _insert(self, operation: str, side: str, changes: str, **order: str) -> str:
        type = literal(f"db.{self.watched.name}.{operation}")
        return filled(
            "events", {**self.values, **key_of(self.watched, side), "type": type, "changes": changes, **order}
        )


@cache
def _template(name: str) -> str:
    return Path(__file__).with_name(f"{name}.sql").read_text()


def terms(source_id: UUID, slug: str, settings: TableSettings, watched: Watched, side: str = "") -> dict[str, str]:
    """What templates take of a source; with the primary key of a row as JSON that is named `side`."""
    return {
        "source": f"{literal(str(source_id))}::uuid",
        "origin": literal(origin_of(slug)),
        "name": literal(watched.name),
        "most": str(settings.most),
        "most_bytes": str(MOST_BYTES),
        "excluded": _array(watched.excluded),
        "condition": f"({watched.condition})" if watched.condition else "true",
        **(key_of(watched, side) if side else {}),
    }


def key_of(watched: Watched, side: str) -> dict[str, str]:
    """The primary key of a row as JSON: its value, or an object of several columns; and a text of it."""
    values = [f"{side} -> {literal(name)}" for name in watched.key]
    texts = [f"({side} ->> {literal(name)})" for name in watched.key]
    pairs = ", ".join(f"{literal(name)}, {value}" for name, value in zip(watched.key, values, strict=True))
    pk = values[0] if len(values) == 1 else f"jsonb_build_object({pairs})" if values else "NULL::jsonb"
    return {"pk": pk, "key": " || ',' || ".join(texts) or "''"}


def filled(name: str, values: Mapping[str, str]) -> str:
    return PLACE.sub(lambda found: values[found[1]], _template(name)).strip()


def literal(text: str) -> str:
    return sql.Literal(text).as_string(None)


def quoted(*names: str) -> str:
    return sql.Identifier(*names).as_string(None)


def _array(names: Sequence[str]) -> str:
    return f"ARRAY[{', '.join(map(literal, names))}]::text[]"
