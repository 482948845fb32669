"""Make and drop the publication and the slot of a source, at its database."""

from collections.abc import Sequence

import psycopg
from django.db import transaction
from psycopg import sql

from agents.guards.atomic import not_in_atomic_body
from runs.models.audit import record
from triggers.exceptions import Invalid
from triggers.models import Source
from triggers.sources.databases.connection import conninfo, in_words
from triggers.sources.databases.server import PLUGIN, Server, SlotFacts
from triggers.sources.databases.slot_settings import KIND, SlotSettings
from triggers.sources.kind import kinds
from triggers.sources.secrets import newest_secret

CREATE_WITHIN = "60s"  # a new slot waits for the transactions that are open
FAILOVER_FROM = 170_000
ALL = "*"  # in place of tables
# In a publication, such tables refuse updates and deletes. Partitions and tables that inherit are published with their parents, and
# have identities of their own.
WITHOUT_IDENTITY = """
WITH RECURSIVE family AS (
  SELECT to_regclass(name)::oid AS id FROM unnest(%(tables)s::text[]) name
  UNION SELECT inhrelid FROM pg_inherits JOIN family ON inhparent = family.id)
SELECT relation.oid::regclass::text FROM pg_class relation JOIN pg_namespace namespace ON namespace.oid = relation.relnamespace
WHERE relation.relkind IN ('r', 'p') AND relation.relpersistence = 'p' AND namespace.nspname NOT IN ('pg_catalog', 'information_schema')
  AND (%(all)s::boolean OR relation.oid IN (SELECT id FROM family))
  AND (relation.relreplident = 'n' OR relation.relreplident = 'd'
    AND NOT EXISTS (SELECT FROM pg_index WHERE indrelid = relation.oid AND indisprimary))
ORDER BY 1 LIMIT 10
"""


def plan(source: Source, *, tables: Sequence[str] = (), failover: bool = False) -> list[str]:
    """The statements that make them, for the owner of the tables."""
    settings = settings_of(source)
    slot, publication = settings.slot_of(source.slug), settings.publication_of(source.slug)
    is_all = not tables or list(tables) == [ALL]
    of = "FOR ALL TABLES" if is_all else f"FOR TABLE {', '.join(_quoted(table) for table in tables)}"
    options = "false, false, true" if failover else ""
    arguments = ", ".join(filter(None, [f"'{slot}'", f"'{PLUGIN}'", options]))
    return [f'CREATE PUBLICATION "{publication}" {of}', f"SELECT pg_create_logical_replication_slot({arguments})"]


@not_in_atomic_body
def create_slot(source: Source, *, tables: Sequence[str] = (), failover: bool = False, by: str) -> SlotFacts:
    """Create the publication and the slot if they are missing. Raises Invalid, which names the fault."""
    settings = settings_of(source)
    slot, publication = settings.slot_of(source.slug), settings.publication_of(source.slug)
    make_publication, make_slot = plan(source, tables=tables, failover=failover)
    server = _server(source, statement_timeout=CREATE_WITHIN)
    try:
        found = server.slot_facts(slot, publication)
        if problem := _hindrance(found, slot, publication, tables=tables, failover=failover):
            raise Invalid([problem])
        if not found.has_publication:
            _require_identity(server, tables)
            server.connection.execute(make_publication.encode())
        server.connection.execute(make_slot.encode())
        made = server.slot_facts(slot, publication)
    except psycopg.errors.QueryCanceled:
        raise Invalid(
            [f"the slot was not ready within {CREATE_WITHIN}: a transaction is open; end it and repeat"]
        ) from None
    except psycopg.Error as error:
        raise Invalid([f"PostgreSQL reports: {in_words(error)}"]) from None
    finally:
        server.close()
    with transaction.atomic():
        record(by, "create slot", source, slot=slot, publication=publication, tables=list(tables))
    return made


@not_in_atomic_body
def drop_slot(source: Source, *, keep_publication: bool = False, by: str) -> None:
    """Drop what there is of the two. Invalid if the slot is in use."""
    settings = settings_of(source)
    slot, publication = settings.slot_of(source.slug), settings.publication_of(source.slug)
    server = _server(source)
    try:
        found = server.slot_facts(slot, publication)
        if found.has_slot:
            server.rows("SELECT pg_drop_replication_slot(%s)", [slot])
        if found.has_publication and not keep_publication:
            server.connection.execute(sql.SQL("DROP PUBLICATION {}").format(sql.Identifier(publication)))
    except psycopg.errors.ObjectInUse:
        raise Invalid([f"slot {slot} is in use by {found.reader}: disable the source, and repeat"]) from None
    except psycopg.Error as error:
        raise Invalid([f"PostgreSQL reports: {in_words(error)}"]) from None
    finally:
        server.close()
    with transaction.atomic():
        record(by, "drop slot", source, slot=slot, publication="" if keep_publication else publication)


def slot_facts_of(source: Source) -> SlotFacts:
    """Invalid if its database does not answer."""
    settings = settings_of(source)
    server = _server(source)
    try:
        return server.slot_facts(settings.slot_of(source.slug), settings.publication_of(source.slug))
    except psycopg.Error as error:
        raise Invalid([f"PostgreSQL reports: {in_words(error)}"]) from None
    finally:
        server.close()


def settings_of(source: Source) -> SlotSettings:
    """Invalid, also if it is a source of another kind."""
    if source.kind != KIND:
        raise Invalid([f"{source.slug} is no source of kind {KIND!r}"])
    settings: SlotSettings = kinds()[source.kind].clean_settings(source.settings)
    return settings


def _server(source: Source, **options: str) -> Server:
    try:
        return Server(
            conninfo(settings_of(source).url, newest_secret(source)), f"wakeful-{source.slug}-slot", **options
        )
    except psycopg.Error as error:
        raise Invalid([f"PostgreSQL reports: {in_words(error)}"]) from None


def _hindrance(found: SlotFacts, slot: str, publication: str, *, tables: Sequence[str], failover: bool) -> str:
    if found.wal_level != "logical":
        return f"the server has wal_level = {found.wal_level}: set it to logical, and restart the server"
    if found.has_slot:
        return f"slot {slot} exists: drop it first to begin again"
    if found.has_publication and tables:
        return f"publication {publication} exists: change its tables with ALTER PUBLICATION, and leave out --tables"
    if not found.has_publication and not tables:
        return f"publication {publication} does not exist: name its tables with --tables, or create it"
    if failover and found.version < FAILOVER_FROM:
        return "failover slots need PostgreSQL 17"
    return ""


def _require_identity(server: Server, tables: Sequence[str]) -> None:
    """Raises Invalid before writers of a table would get errors."""
    names = [_quoted(table) for table in tables if table != ALL]
    if without := server.rows(WITHOUT_IDENTITY, {"all": list(tables) == [ALL], "tables": names}):
        listed = ", ".join(name for (name,) in without)
        raise Invalid(
            [
                f"{listed}: without a primary key, a published table refuses every UPDATE and DELETE; give it one, or "
                "ALTER TABLE … REPLICA IDENTITY FULL"
            ]
        )


def _quoted(table: str) -> str:
    parts = table.split(".")
    if len(parts) > 2 or not all(parts):
        raise Invalid([f"{table!r} is no table: use schema.table"])
    return ".".join('"' + part.replace('"', '""') + '"' for part in parts)
