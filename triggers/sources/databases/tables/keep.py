"""Make the triggers of watched tables, look after them, and remove those of sources that are disabled or gone.

Each source is kept in a transaction of its own, which waits a second at most for a lock of its table: it writes down that it could
not, and the next round tries again. A trigger that is missing although it was made (a table dropped and made again, a restore, an
ALTER TABLE … DISABLE TRIGGER) is made again, and the gap is said.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

import structlog
from django.db import DatabaseError, connection, transaction
from psycopg.errors import InsufficientPrivilege

from agents.guards.atomic import not_in_atomic_body
from runs.db.patience import Locked, no_longer_than
from runs.db.sql import database_now, fetch
from triggers.models import Source, SweptRow, WatchedTable
from triggers.sources.databases.tables.capture import (
    IDLE,
    PREFIX,
    create_function,
    create_trigger,
    functions,
    quoted,
)
from triggers.sources.databases.tables.watched import TableSettings, find
from triggers.sources.settings import InvalidSettings, clean

log = structlog.get_logger(__name__)

KIND = "table"
PATIENCE = timedelta(seconds=1)  # for a lock of a table: later writers wait behind this one
LOCK = "SELECT pg_advisory_xact_lock(hashtext('wakeful_change'), hashtext(%s::text))"  # one process at a time
SCHEMA = "SELECT current_schema()"
TRIGGERS = """
SELECT tgname, tgrelid::int8, tgenabled = 'O' FROM pg_trigger WHERE NOT tgisinternal AND starts_with(tgname, %s::text)
"""
FUNCTIONS = (
    "SELECT proname, prosrc FROM pg_proc WHERE starts_with(proname, %s::text) AND pronamespace = %s::regnamespace"
)
NAMES = "SELECT oid::int8, oid::regclass::text FROM pg_class WHERE oid = ANY(%s::oid[])"
BUSY = "Another session holds the table: {error}."
BUSY_REMEDY = "It is tried again every few minutes, and with *Check now*. Look for a long transaction on the table."
REFUSED_REMEDY = (
    "Let Wakeful's database user own the table, or GRANT it TRIGGER on the table and CREATE on its own schema."
)
SETTINGS_REMEDY = "Correct the settings of the source, or its declaration; its old triggers go on."
GAP = (
    "The triggers on {tables} were gone or disabled, such as after a restore, or after the table was made again: changes between "
    "{since} and {until} are no events."
)


@dataclass(kw_only=True)
class Objects:
    """What the database has of one source."""

    bodies: dict[str, str] = field(default_factory=dict)  # by function
    triggers: dict[tuple[str, int], bool] = field(default_factory=dict)  # (name, oid of the table) → does it fire?


@not_in_atomic_body
def keep_tables() -> None:
    """Bring the triggers of all sources to what they should be, and write down whether they are."""
    sources = Source.objects.filter(kind=KIND, enabled=True).values_list("pk", flat=True)
    for source_id in sorted({*sources, *objects()}):
        keep_table(source_id)


@not_in_atomic_body
def keep_table(source_id: UUID) -> None:
    """Do so for one source, or for what a deleted one has left."""
    source = Source.objects.filter(pk=source_id, kind=KIND, enabled=True).first()
    if source:
        keep(source)
    else:
        remove(source_id)


def keep(source: Source) -> None:
    """Make its triggers, or write down why not."""
    error = remedy = ""
    try:
        with no_longer_than(PATIENCE):
            fetch(LOCK, [source.pk.hex])
            _make(source)
    except InvalidSettings as wrong:
        error, remedy = str(wrong), SETTINGS_REMEDY
    except Locked as busy:
        error, remedy = BUSY.format(error=_first_line(busy)), BUSY_REMEDY
    except DatabaseError as failed:
        refused = isinstance(failed.__cause__, InsufficientPrivilege)
        error, remedy = (
            _first_line(failed),
            REFUSED_REMEDY if refused else "Read the error; it is tried again every few minutes.",
        )
    if error:
        now = database_now()
        log.warning("table.not_watched", source=source.slug, error=error)
        kept, _ = WatchedTable.objects.get_or_create(source=source)
        WatchedTable.objects.filter(source=source).update(
            error=error, remedy=remedy, failing_since=kept.failing_since or now
        )


def remove(source_id: UUID) -> None:
    """Its functions do nothing from now on; its triggers go as soon as no session holds their tables."""
    schema, there = _schema(), objects().get(source_id, Objects())
    with transaction.atomic():
        for name in there.bodies:
            _define(create_function(schema, name, IDLE))
        WatchedTable.objects.filter(source_id=source_id).update(
            relations={},
            kept_at=None,
            error="",
            remedy="",
            failing_since=None,
            digested=[],
            swept_at=None,
            sweep_began_at=None,
        )
        SweptRow.objects.filter(source_id=source_id).delete()
    try:
        with no_longer_than(PATIENCE):
            fetch(LOCK, [source_id.hex])
            _drop(schema, there, there.triggers, there.bodies)
    except DatabaseError as error:
        log.warning("table.triggers_left", source=str(source_id), error=_first_line(error))
    except Locked as busy:
        log.info("table.triggers_left", source=str(source_id), error=_first_line(busy))


def objects() -> dict[UUID, Objects]:
    """By source."""
    found: dict[UUID, Objects] = defaultdict(Objects)
    for name, body in fetch(FUNCTIONS, [PREFIX, _schema()]):
        found[_source_of(name)].bodies[name] = body
    for name, table, fires in fetch(TRIGGERS, [PREFIX]):
        found[_source_of(name)].triggers[name, table] = fires
    return dict(found)


def _make(source: Source) -> None:
    settings = clean(TableSettings, source.settings)
    watched = find(settings)
    schema, there = _schema(), objects().get(source.pk, Objects())
    names = dict(fetch(NAMES, [list(watched.relations)]))
    wanted = list(functions(source.pk, source.slug, settings, watched))
    for function in wanted:
        if there.bodies.get(function.name) != function.body:
            _define(create_function(schema, function.name, function.body))
    missing = [
        (function, table)
        for function in wanted
        for table in watched.relations
        if not there.triggers.get((function.name, table))
    ]
    for function, table in missing:
        _define(create_trigger(schema, function, names[table]))
    kept = {function.name for function in wanted}
    spare = {
        one: fires for one, fires in there.triggers.items() if one[0] not in kept or one[1] not in watched.relations
    }
    _drop(schema, there, spare, there.bodies.keys() - kept)
    relations = {names[table]: sorted(kept) for table in watched.relations}
    _write_down(source, relations, [(names[table], function.name) for function, table in missing])


def _write_down(source: Source, relations: Mapping[str, Sequence[str]], made: Iterable[tuple[str, str]]) -> None:
    now = database_now()
    row, _ = WatchedTable.objects.get_or_create(source=source)
    # A new operation is no gap, and neither is a new partition: what came by its parent is an event.
    lost = sorted({table for table, name in made if name in row.relations.get(table, ())})
    if lost:
        row.gap_at = now
        row.gap = GAP.format(
            tables=", ".join(lost), since=f"{row.kept_at:%Y-%m-%d %H:%M:%S}", until=f"{now:%Y-%m-%d %H:%M:%S} UTC"
        )
        log.warning("table.gap", source=source.slug, tables=lost)
    row.relations, row.kept_at = dict(relations), now
    row.error = row.remedy = ""
    row.failing_since = None
    row.save(update_fields=["relations", "kept_at", "error", "remedy", "failing_since", "gap", "gap_at"])


def _drop(schema: str, there: Objects, triggers: Mapping[tuple[str, int], bool], bodies: Iterable[str]) -> None:
    names = dict(fetch(NAMES, [[table for _, table in triggers]]))
    for name, table in triggers:
        _define(f"DROP TRIGGER IF EXISTS {quoted(name)} ON {names[table]}")
    for name in bodies:
        _define(f"DROP FUNCTION IF EXISTS {quoted(schema, name)}()")


def _define(statement: str) -> None:
    """Without parameters: a literal of it may have a percent sign."""
    with connection.cursor() as cursor:
        cursor.execute(statement)


def _schema() -> str:
    [(schema,)] = fetch(SCHEMA)
    return str(schema)


def _source_of(name: str) -> UUID:
    return UUID(name.removeprefix(PREFIX).partition("_")[0])


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
