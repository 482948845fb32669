"""The rows that are there when reading begins, as events, in parts: each goes on at the place in the table where the last one ended.

The slot exists before the first part is read, so that a row that changes meanwhile comes in its state at the time of reading, and
its changes come after the snapshot. Rows are read in their physical order, which needs no key and no sort of the table."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from psycopg import sql
from psycopg.adapt import Loader

from triggers.sources.databases.changes import SNAPSHOT, Table
from triggers.sources.databases.pgoutput import DEFAULT, Column, Relation, RowChange, in_utf8
from triggers.sources.databases.server import Server
from triggers.sources.runner import BATCH, BATCH_BYTES

WINDOW = 128  # blocks of a table that one query reads
LOOKS = 20  # queries of one part, in a table with few rows
BEGINNING = "(0,0)"
TID = 27  # the type of ctid
# Partitions one by one; with `publish_via_partition_root` they are named as their root.
TABLES = """
SELECT part.oid::bigint AS oid, pg_relation_filenode(part.oid)::bigint AS file, part.oid::regclass::text AS name,
  pg_relation_size(part.oid) / current_setting('block_size')::bigint AS blocks,
  published.schemaname::text AS schema, published.tablename::text AS table, root.oid::bigint AS root,
  to_jsonb(published)->'attnames' AS columns, to_jsonb(published)->>'rowfilter' AS filter
FROM pg_publication_tables published
JOIN pg_namespace namespace ON namespace.nspname = published.schemaname
JOIN pg_class root ON root.relnamespace = namespace.oid AND root.relname = published.tablename
CROSS JOIN LATERAL (
  SELECT root.oid WHERE root.relkind = 'r'
  UNION ALL SELECT leaf.relid FROM pg_partition_tree(root.oid) leaf JOIN pg_class ON pg_class.oid = leaf.relid
  WHERE root.relkind = 'p' AND leaf.isleaf AND pg_class.relkind = 'r') part
WHERE published.pubname = %s AND part.oid::bigint >= %s ORDER BY part.oid LIMIT 1
"""
COLUMNS = """
SELECT attname::text, atttypid::bigint FROM pg_attribute
WHERE attrelid = %s::oid AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum
"""
ROWS = "SELECT ctid, {columns} FROM ONLY {table} WHERE ctid > {after} AND ctid < {end} AND ({filter}) ORDER BY ctid LIMIT {most}"


class Raw(Loader):
    """Values as they come, as in the messages of pgoutput."""

    def load(self, data: Any) -> bytes:
        return bytes(data)


@dataclass(frozen=True)
class Part:
    """Rows, each with its place in the file of the table, and how far the snapshot is read; None at its end. A table that is
    rewritten (VACUUM FULL, CLUSTER) has another file, in which other rows may stand at the same places."""

    table: Table | None
    rows: list[tuple[str, RowChange]]
    state: dict[str, Any] | None
    file: int = 0


def read_part(
    server: Server, publication: str, state: dict[str, Any], excluded_of: Callable[[Relation], frozenset[str]]
) -> Part:
    """Read the next rows: at most BATCH and about BATCH_BYTES."""
    found = server.rows(TABLES, [publication, state.get("oid", 0)])
    if not found:
        return Part(None, [], None)
    oid, file, name, blocks, schema, table, root, only, row_filter = found[0]
    if (state.get("oid"), state.get("file")) != (oid, file):  # the next table, or one that was rewritten
        state = {"oid": oid, "file": file, "table": name, "blocks": blocks, "after": BEGINNING}
    columns = [one for one in server.rows(COLUMNS, [oid]) if only is None or one[0] in only]
    key = set(server.primary_key(root) or server.primary_key(oid))
    relation = Relation(
        oid, schema, table, DEFAULT, tuple(Column(column, type_oid, column in key) for column, type_oid in columns)
    )
    known = Table(
        relation, server.primary_key(root), server.built_in(type_oid for _, type_oid in columns), excluded_of(relation)
    )
    rows: list[tuple[str, RowChange]] = []
    after = state["after"]
    for _ in range(LOOKS):
        if rows or _block(after) >= state["blocks"]:
            break
        end = f"({_block(after) + WINDOW},0)"
        rows, is_whole = _rows(server, name, relation, after, end, row_filter or "true")
        after = end if is_whole else rows[-1][0]
    if _block(after) >= state["blocks"]:
        return Part(known, rows, {"oid": oid + 1}, file)
    return Part(known, rows, {**state, "after": after}, file)


def _rows(
    server: Server, name: str, relation: Relation, after: str, end: str, row_filter: str
) -> tuple[list[tuple[str, RowChange]], bool]:
    """The rows between two places, and whether these are all."""
    query = sql.SQL(ROWS).format(
        columns=sql.SQL(", ").join(sql.Identifier(column.name) for column in relation.columns),
        table=sql.SQL(name),  # a regclass as text, quoted by the server
        after=sql.Literal(after),
        end=sql.Literal(end),
        filter=sql.SQL(row_filter),  # the publication's own, as the server writes it
        most=sql.Literal(BATCH),
    )
    rows, size = [], 0
    cursor = server.connection.cursor()
    for type_oid in {0, *(column.type for column in relation.columns), TID}:
        cursor.adapters.register_loader(type_oid, Raw)
    with server.as_stored() as codec:
        stream: Any = cursor.stream(query.as_string(None).encode(codec))
        with closing(stream):  # it may end early
            for ctid, *stored in stream:
                values = [value if value is None else in_utf8(value, codec) for value in stored]
                rows.append((ctid.decode(), RowChange(SNAPSHOT, relation.oid, new=values)))
                size += sum(len(value) for value in values if value is not None)
                if size >= BATCH_BYTES:
                    return rows, False
    return rows, len(rows) < BATCH


def _block(place: str) -> int:
    return int(place[1:].partition(",")[0])
