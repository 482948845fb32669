"""Questions to a database whose changes we read, over an ordinary connection."""

import os
import re
import select
import socket
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import pq
from psycopg.rows import class_row

from triggers.sources.databases.wire import OPTIONS, use_own_encoding, use_utf8, with_options

PLUGIN = "pgoutput"
OLDEST = 140_000
BUILT_IN = 16384  # oids of built-in types are below
STATEMENT_TIMEOUT = "20s"
ANSWERS_WITHIN = 30.0  # seconds
NOW = "(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END)"
OWN = "^(agents|runs|triggers)_"  # of a schema that has events
HAVE_EVENTS = """
SELECT nspname AS schema FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE relname = 'triggers_event'
"""
LOOK = f"""
SELECT current_setting('server_version_num')::int AS version, current_setting('wal_level') AS wal_level,
  current_setting('max_slot_wal_keep_size') AS keep, current_database() AS database, current_user::text AS role,
  EXISTS (SELECT FROM pg_publication WHERE pubname = %(publication)s) AS has_publication,
  EXISTS (SELECT FROM pg_publication_tables WHERE pubname = %(publication)s AND tablename ~ '{OWN}'
    AND schemaname IN (SELECT schema FROM ({HAVE_EVENTS}) have_events)) AS has_events,
  slot.slot_name IS NOT NULL AS has_slot, coalesce(slot.plugin, '') AS plugin, coalesce(slot.database, '') AS slot_database,
  coalesce(slot.active, false) AS is_active, slot.active_pid, coalesce(slot.wal_status, '') AS wal_status,
  coalesce(to_jsonb(slot)->>'invalidation_reason', '') AS invalidation,
  coalesce(slot.confirmed_flush_lsn::text, '') AS confirmed, slot.safe_wal_size::bigint AS safe,
  pg_wal_lsn_diff({NOW}, slot.restart_lsn)::bigint AS retained,
  pg_wal_lsn_diff({NOW}, slot.confirmed_flush_lsn)::bigint AS behind,
  (SELECT format('%%s (pid %%s, %%s)', application_name, pid, coalesce(host(client_addr), 'local'))
   FROM pg_stat_activity WHERE pid = slot.active_pid) AS reader
FROM (SELECT) one LEFT JOIN pg_replication_slots slot ON slot.slot_name = %(slot)s
"""  # noqa: S608  (our own parts)
PRIMARY_KEY = """
SELECT attribute.attname FROM pg_index index
CROSS JOIN unnest(index.indkey::int2[]) WITH ORDINALITY AS part(number, place)
JOIN pg_attribute attribute ON attribute.attrelid = index.indrelid AND attribute.attnum = part.number
WHERE index.indrelid = %s::oid AND index.indisprimary ORDER BY part.place
"""
# The table, and those above it: of a partition, and of a table that inherits.
PARENTS = """
WITH RECURSIVE family AS (
  SELECT %s::oid AS id UNION SELECT inhparent FROM pg_inherits JOIN family ON inhrelid = family.id)
SELECT nspname::text, relname::text FROM family JOIN pg_class ON pg_class.oid = family.id
JOIN pg_namespace ON pg_namespace.oid = relnamespace
"""
# Of a domain the type below it; arrays have one form; the rest is read as text.
TYPES = """
SELECT oid, CASE WHEN typtype = 'd' THEN typbasetype WHEN typcategory = 'A' THEN 'text[]'::regtype::oid ELSE 'text'::regtype::oid END
FROM pg_type WHERE oid = ANY(%s::oid[])
"""


@dataclass(frozen=True, kw_only=True)
class SlotFacts:
    """A slot, and what it needs of its server. Bytes are None without a slot, and `safe` also without a limit for it."""

    version: int
    wal_level: str
    keep: str  # max_slot_wal_keep_size
    database: str
    role: str
    has_publication: bool
    has_events: bool  # Wakeful's own are published: each would be another one
    has_slot: bool
    plugin: str
    slot_database: str
    is_active: bool
    active_pid: int | None
    wal_status: str
    invalidation: str
    confirmed: str
    safe: int | None  # bytes until the server may give the slot up
    retained: int | None  # bytes of WAL that the server keeps for it
    behind: int | None  # bytes of WAL behind the last confirmed place
    reader: str | None

    @property
    def is_lost(self) -> bool:
        return self.wal_status == "lost" or bool(self.invalidation)


class Server:
    """psycopg.Error if it does not answer, also if it is frozen."""

    def __init__(self, conninfo: str, name: str, *, statement_timeout: str = STATEMENT_TIMEOUT) -> None:
        # Rows that row-level security hides are an error: a snapshot without them would look whole.
        chosen = {**OPTIONS, "statement_timeout": statement_timeout, "lock_timeout": "5s", "row_security": "off"}
        self.connection = psycopg.connect(with_options(conninfo, name, chosen), autocommit=True)

    def slot_facts(self, slot: str, publication: str) -> SlotFacts:
        with self._within(ANSWERS_WITHIN), self.connection.cursor(row_factory=class_row(SlotFacts)) as cursor:
            cursor.execute(LOOK, {"slot": slot, "publication": publication})
            return cursor.fetchall()[0]

    def primary_key(self, oid: int) -> tuple[str, ...]:
        return tuple(name for (name,) in self.rows(PRIMARY_KEY, [oid]))

    def parents(self, oid: int) -> list[tuple[Any, ...]]:
        """Schema and name of the table, and of those above it."""
        return self.rows(PARENTS, [oid])

    def is_own(self, schema: str, table: str) -> bool:
        """Is this a table of a Wakeful installation? Events of its changes would cause further changes."""
        return bool(re.match(OWN, table)) and (schema,) in self.rows(HAVE_EVENTS)

    def built_in(self, oids: Iterable[int]) -> dict[int, int]:
        """The built-in types that say how to read values of other types."""
        others = [oid for oid in oids if oid >= BUILT_IN]
        return dict(self.rows(TYPES, [others])) if others else {}

    def rows(self, query: Any, parameters: Any = None) -> list[tuple[Any, ...]]:
        with self._within(ANSWERS_WITHIN):
            return self.connection.execute(query, parameters).fetchall()

    @property
    def has_ended(self) -> bool:
        """Whether the server has closed this idle connection, which it does first when it stops."""
        if self.connection.closed:
            return True
        # Whatever comes between two statements, such as a changed setting, is read until the end of the stream shows.
        with suppress(psycopg.Error):
            while select.select([self.connection.fileno()], [], [], 0)[0]:
                self.connection.pgconn.consume_input()
        return self.connection.pgconn.status == pq.ConnStatus.BAD

    @contextmanager
    def as_stored(self) -> Iterator[str]:
        """Read texts as they are stored, in this codec."""
        codec = use_own_encoding(self.connection)
        try:
            yield codec
        finally:
            with suppress(psycopg.Error):  # it may be broken
                use_utf8(self.connection)

    def close(self) -> None:
        self.connection.close()

    @contextmanager
    def _within(self, seconds: float) -> Iterator[None]:
        """Break the connection after this time: a frozen server keeps it open without an answer."""
        timer = threading.Timer(seconds, self._break)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _break(self) -> None:
        with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(self.connection.fileno())) as broken:
            broken.shutdown(socket.SHUT_RDWR)
