"""The functions and triggers that write the events of a watched table, in the transaction of the change.

A trigger sees the rows of a whole statement, so that the events of 100,000 rows are one INSERT, or all of them are one event. The
functions take columns by their names from the rows as JSON: a column that is added, renamed or dropped later breaks no write. As long
as the columns are those of the settings' time, the JSON has those alone that are stored: no large value that is excluded is unpacked.
They write what `triggers.accept` writes: each change is an event with an identity of its own, so there are no duplicates to look for.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from uuid import UUID

from psycopg import sql
from psycopg.postgres import types

from agents.kernel.redaction import SECRET_FIELD
from triggers.sources.databases.tables.watched_table import MOST, TableSettings, Watched
from triggers.sources.databases.values import STYLE
from triggers.sources.runner import origin_of

PREFIX = "wakeful_change_"  # of everything that is made
MOST_BYTES = 256 * 1024  # of a row's values; above, the event has the primary key alone
MOST_KEYS = (
    1_000  # of the rows of a statement that is one event; further ones, and those beyond MOST_BYTES, are counted
)
OLD, NEW = "wakeful_old_rows", "wakeful_new_rows"
# For as long as a function runs, as the session of the user may have others. Rows that row-level security hides are an error. Plans
# are made once and kept, at a statement of one row perhaps: a nested loop over the two tables of a later statement with 100,000 rows
# would not end.
SETTINGS = {
    "search_path": "pg_catalog, {schema}, pg_temp",
    "row_security": "off",
    "enable_nestloop": "off",
    "jit": "off",
    **STYLE,
}
# Types whose values are always JSON that can be read. Those of others are looked at: `triggers_row_as_json`.
PLAIN = (
    "bool int2 int4 int8 oid float4 float8 text varchar bpchar name uuid date time timetz timestamp timestamptz interval bytea inet "
    "cidr macaddr bit varbit money"
)
MOST_PLAIN = 1_000_000  # bytes of a row as it is stored, perhaps compressed; jsonb holds 256 MB
WHOLE = "wakeful_row"  # of the statement's rows
UNPAIRED = (
    "An UPDATE has more old rows than new ones, such as when a trigger of a partition keeps out rows that move to it. Which row became "
    "which cannot be known: its changes are no events"
)
UNREADABLE = (
    "Rows cannot be written as JSON, such as when a cast to json of the table's own fails: their changes are no events"
)
UNSEEN = (
    "A TRUNCATE of a transaction that is REPEATABLE READ or SERIALIZABLE: rows that others have committed since it began are deleted, "
    "too, and are no events"
)
ERROR = "CASE WHEN SQLSTATE LIKE '42%' THEN SQLERRM ELSE 'error ' || SQLSTATE END"  # others may quote values


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
    """The database functions that the settings need; TRUNCATE counts as a deletion."""
    write = _Writer(source_id, slug, settings, watched)
    if "insert" in settings.operations:
        yield Function(
            name=name_of(source_id, "insert"),
            body=write.body("insert", NEW, partial(write.one, "new", "insert", NEW)),
            fires="AFTER INSERT",
            tables=f"REFERENCING NEW TABLE AS {NEW}",
        )
    if "update" in settings.operations:
        yield Function(
            name=name_of(source_id, "update"),
            body=write.body("update", NEW, write.update),
            fires="AFTER UPDATE",
            tables=f"REFERENCING OLD TABLE AS {OLD} NEW TABLE AS {NEW}",
        )
    if "delete" in settings.operations:
        yield Function(
            name=name_of(source_id, "delete"),
            body=write.body("delete", OLD, partial(write.one, "old", "delete", OLD)),
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
        stored = [
            name
            for name in watched.columns
            if name not in watched.virtual and (name not in watched.excluded or name in watched.watched)
        ]
        self.stored = stored_row(stored, watched.sized)
        self.values = {
            **terms(source_id, slug, settings, watched),
            "fit": filled("fit", {}),
            "most_keys": str(MOST_KEYS),
            "settings": f"{SETTINGS}",  # a function with others is made again
        }
        unnamed = [name for name in watched.excluded if name not in watched.watched]  # stand not in `changed` either
        names = {
            "plain": f"'{{{','.join(str(types[name].oid) for name in PLAIN.split())}}}'::oid[]",
            "known": _array(watched.columns),
            "stored": _array(stored),
            "typed": _array([f"{name} {watched.types[name]}" for name in watched.columns] if stored else []),
            "secret": literal(SECRET_FIELD.pattern),
            "unnamed": _array(unnamed),
        }
        self.values["columns"] = filled("columns", {**self.values, **names})
        if settings.is_by_statement:
            self.values["most"] = str(MOST + 1)  # all rows count

    def body(self, operation: str, rows: str, write: Callable[[str], str]) -> str:
        """`write` makes the statement that writes the events, from the expression of a row."""
        values = {**self.values, "rows": rows, "first": rows, "guard": "", "pairs": ""}
        values |= {"insert": write(WHOLE), "insert_stored": write(self.stored)}
        if operation == "update":
            values |= {"first": OLD, "pairs": filled("pairs", {"poison": self._poison(operation, literal(UNPAIRED))})}
        if self.watched.condition:
            said = "The condition does not fit the table, so the changes of a statement are no events: "
            values["guard"] = filled(
                "guard", {**values, "poison": self._poison(operation, f"{literal(said)} || {ERROR}")}
            )
        said = f" rows: only the first {self.values['most']} that meet the condition are events"
        reason = f"'A statement changed ' || (SELECT count(*) FROM {rows}) || {literal(said)}"  # noqa: S608  (our own parts)
        values["unreadable"] = self._poison(operation, literal(UNREADABLE))
        return filled("capture", {**values, "poison": self._poison(operation, reason)})

    def _poison(self, operation: str, reason: str) -> str:
        return filled("poison", {**self.values, "operation": literal(operation), "reason": reason})

    def one(self, side: str, operation: str, rows: str, row: str) -> str:
        """Inserts or deletes."""
        old, new = ("NULL::jsonb", "wakeful_json") if side == "new" else ("wakeful_json", "NULL::jsonb")
        changes = (
            f"SELECT row_number() OVER () AS at, {old} AS old, {new} AS new, '{{}}'::text[] AS changed FROM ("  # noqa: S608  (our own parts)
            f"SELECT {as_json('wakeful_taken')} AS wakeful_json FROM ("
            f"SELECT {row} AS wakeful_taken FROM {rows} AS wakeful_row WHERE {self.values['condition']} OFFSET 0) wakeful_each OFFSET 0"
            ") wakeful_read WHERE wakeful_json IS NOT NULL"
        )
        return self._insert(operation, side, changes, order="", is_first="at = 1")  # the table of rows has their order

    def update(self, row: str) -> str:
        watched = self.watched.watched
        if watched:
            differs = " OR ".join(f"old -> {literal(name)} IS DISTINCT FROM new -> {literal(name)}" for name in watched)
            # One that is gone meanwhile: rather an event too many.
            differs = f"{differs} OR NOT new ?& {_array(watched)}"
        else:
            differs = "old - wakeful_excluded <> new - wakeful_excluded"
        rows = {"old_row": as_json("wakeful_old"), "new_row": as_json("wakeful_new")}
        changes = filled("update", {**self.values, **rows, "row": row, "differs": differs})
        is_first = "row_number() OVER (ORDER BY at) = 1"
        return self._insert("update", "new", changes, order="ORDER BY at", is_first=is_first)

    def truncate(self) -> str:
        """The rows of partitions are those of their own triggers. The statement is made when it runs: there is no table of rows."""
        inserts = {"insert": WHOLE, "insert_stored": self.stored}
        for name, row in inserts.items():
            insert = self.one("old", "delete", "ONLY wakeful_truncated", row)
            for number, variable in enumerate(("wakeful_is_plain", "wakeful_excluded"), start=1):
                insert = insert.replace(variable, f"${number}")
            inserts[name] = literal(insert)
        most = self.values["most"]
        said = literal(f"A TRUNCATE deleted {most} rows or more: the first {most} that meet the condition are events")
        failed = f"'The rows of a TRUNCATE are no events: ' || {ERROR}"
        reasons = {"failed": failed, "too_many": said, "unreadable": literal(UNREADABLE), "unseen": literal(UNSEEN)}
        poisons = {name: self._poison("delete", reason) for name, reason in reasons.items()}
        return filled("truncate", {**self.values, **poisons, **inserts})

    def _insert(self, operation: str, side: str, changes: str, **order: str) -> str:
        values = {**self.values, **key_of(self.watched, side), **order, "changes": changes}
        values |= {"type": literal(type_of(self.settings, self.watched, operation)), "operation": literal(operation)}
        return filled("statement" if self.settings.is_by_statement else "events", values)


def type_of(settings: TableSettings, watched: Watched, operation: str) -> str:
    return f"db.{watched.name}.{operation}{'.statement' if settings.is_by_statement else ''}"


@cache
def _template(name: str) -> str:
    return Path(__file__).with_name(f"{name}.sql").read_text()


def terms(source_id: UUID, slug: str, settings: TableSettings, watched: Watched, side: str = "") -> dict[str, str]:
    """Template variables for a source. `side` names the JSON row that the primary key is taken from."""
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
    pk = values[0] if len(values) == 1 else f"pg_catalog.jsonb_build_object({pairs})" if values else "NULL::jsonb"
    return {"pk": pk, "key": " || ',' || ".join(texts) or "''"}


def stored_row(columns: Sequence[str], sized: Collection[str]) -> str:
    """The row as JSON, of its columns only. A text beyond MOST_BYTES is replaced by another one that is
    too large for an event as well, and that differs if the text does.
    """
    terms = []
    for name in columns:
        column = quoted(name)
        if name in sized:
            longer = f"pg_catalog.octet_length({column}) > {MOST_BYTES}"
            other = f"pg_catalog.repeat(pg_catalog.md5({column}), {MOST_BYTES // 32 + 1})"
            column = f"CASE WHEN {longer} THEN {other} ELSE {column}::text END AS {column}"
        terms.append(column)
    return f"(SELECT wakeful_stored FROM (SELECT {', '.join(terms)}) AS wakeful_stored)"  # noqa: S608  (quoted names)


def as_json(row: str) -> str:
    is_plain = f"wakeful_is_plain AND pg_catalog.pg_column_size({row}) < {MOST_PLAIN}"
    careful = f"triggers_row_as_json({row}, {MOST_BYTES})"
    return f"CASE WHEN {is_plain} THEN pg_catalog.to_jsonb({row}) ELSE {careful} END"


def filled(name: str, values: Mapping[str, str]) -> str:
    return PLACE.sub(lambda found: values[found[1]], _template(name)).strip()


def literal(text: str) -> str:
    return sql.Literal(text).as_string(None)


def quoted(*names: str) -> str:
    return sql.Identifier(*names).as_string(None)


def _array(names: Sequence[str]) -> str:
    return f"ARRAY[{', '.join(map(literal, names))}]::text[]"
