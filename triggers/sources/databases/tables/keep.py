"""Make the triggers of watched tables, look after them, and remove those of sources that are disabled or gone.

Each source is kept in a transaction of its own, which waits a second at most for a lock of its table: it writes down that it could
not, and the next round tries again. A trigger that is missing although it was made (a table dropped and made again, a restore, an
ALTER TABLE … DISABLE TRIGGER) is made again, and the gap is reported.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

import structlog
from django.db import DatabaseError, connection, transaction
from psycopg.errors import InsufficientPrivilege

from agents.guards.atomic import not_in_atomic_body
from runs.db.patience import Locked, no_longer_than
from runs.db.sql import database_now, fetch
from runs.models.audit import record
from triggers.models import Source, SweptRow, WatchedTable
from triggers.sources.databases.tables.capture import (
    IDLE,
    PREFIX,
    Function,
    create_function,
    create_trigger,
    functions,
    quoted,
)
from triggers.sources.databases.tables.watched_table import Forbidden, TableSettings, Watched, find
from triggers.sources.settings import InvalidSettings, NotYet, clean

log = structlog.get_logger(__name__)

KIND = "table"
PATIENCE = timedelta(seconds=1)  # for a lock of a table: later writers wait behind this one
LOCK = "SELECT pg_advisory_xact_lock(hashtext('wakeful_change'), hashtext(%s::text))"  # one process at a time
SCHEMA = "SELECT current_schema()"
TRIGGERS = """
SELECT tgname, tgrelid::int8, tgenabled IN ('O', 'A') FROM pg_trigger WHERE NOT tgisinternal AND starts_with(tgname, %s::text)
"""
# One that others may execute, such as after a restore without privileges, is made again: on a table of their own it would write
# events of their choice.
FUNCTIONS = """
SELECT proname, CASE WHEN has_function_privilege('public', oid, 'EXECUTE') THEN '' ELSE prosrc END
FROM pg_proc WHERE starts_with(proname, %s::text) AND pronamespace = %s::regnamespace
"""
NAMES = "SELECT oid::int8, oid::regclass::text FROM pg_class WHERE oid = ANY(%s::oid[])"
BUSY = "Another session holds the table: {error}."
BUSY_REMEDY = "It is tried again every few minutes, and with *Check now*. Look for a long transaction on the table."
REFUSED_REMEDY = (
    "Let Wakeful's database user own the table, or GRANT it TRIGGER on the table and CREATE on its own schema."
)
FORBIDDEN_REMEDY = "Correct the settings of the source, or its declaration; its triggers are removed."
SETTINGS_REMEDY = "Correct the settings of the source, or its declaration; its old triggers go on."
NOT_YET_REMEDY = "Its triggers are made when the migration is applied; until then, changes are no events."
GAP = (
    "The triggers on {tables} were gone or disabled, such as after a restore, or after the table was made again: changes between "
    "{since} and {until} are no events."
)


@dataclass(kw_only=True)
class Objects:
    """The database objects of one source."""

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


@not_in_atomic_body
def check_table(source: Source, by: str) -> None:
    """Keep one source now, because an operator asks for it."""
    keep_table(source.pk)
    record(by, "check", source)


def keep(source: Source) -> None:
    """Make its triggers, or write down why not."""
    error = remedy = ""
    try:
        with _briefly(source.pk):
            watched, wanted = _make_functions(source)
        # In transactions of their own: a busy table keeps no function in force that stores what is now excluded, and of many
        # partitions none is locked while another is waited for.
        _make_triggers(source, watched, wanted)
        _drop_spare(source, watched, wanted)
        WatchedTable.objects.filter(source=source).update(error="", remedy="", failing_since=None)
    except Forbidden as wrong:
        remove(source.pk)
        error, remedy = str(wrong), FORBIDDEN_REMEDY
    except NotYet as missing:
        error, remedy = str(missing), NOT_YET_REMEDY
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
    """Disable the functions of a source, and remove its triggers as soon as no session locks their tables."""
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
        _drop(source_id, there.triggers, there.bodies)
    except DatabaseError as error:
        log.warning("table.triggers_left", source=str(source_id), error=_first_line(error))
    except Locked as busy:
        log.info("table.triggers_left", source=str(source_id), error=_first_line(busy))


def objects() -> dict[UUID, Objects]:
    """The database objects by source."""
    found: dict[UUID, Objects] = defaultdict(Objects)
    for name, body in fetch(FUNCTIONS, [PREFIX, _schema()]):
        found[_source_of(name)].bodies[name] = body
    for name, table, fires in fetch(TRIGGERS, [PREFIX]):
        found[_source_of(name)].triggers[name, table] = fires
    return dict(found)


def _make_functions(source: Source) -> tuple[Watched, list[Function]]:
    settings = clean(TableSettings, source.settings)
    watched = find(settings)
    schema, there = _schema(), objects().get(source.pk, Objects())
    wanted = list(functions(source.pk, source.slug, settings, watched))
    for function in wanted:
        if there.bodies.get(function.name) != function.body:
            _define(create_function(schema, function.name, function.body))
    return watched, wanted


def _make_triggers(source: Source, watched: Watched, wanted: Sequence[Function]) -> None:
    schema, there = _schema(), objects().get(source.pk, Objects())
    names = dict(fetch(NAMES, [list(watched.relations)]))
    row, _ = WatchedTable.objects.get_or_create(source=source)
    lost: list[tuple[str, Function]] = []
    # A new operation is no gap, and neither is a new partition: what came by its parent is an event.
    for table in watched.relations:
        missing = [one for one in wanted if not there.triggers.get((one.name, table))]
        lost += [(names[table], one) for one in missing if one.name in row.relations.get(names[table], ())]
        if new := [one for one in missing if (names[table], one) not in lost]:
            with _briefly(source.pk):
                for function in new:
                    _define(create_trigger(schema, function, names[table]))
    with _briefly(source.pk):
        for name, function in lost:
            _define(create_trigger(schema, function, name))
        _write_down(
            row, {name: sorted(one.name for one in wanted) for name in names.values()}, {name for name, _ in lost}
        )


def _drop_spare(source: Source, watched: Watched, wanted: Sequence[Function]) -> None:
    """Triggers of operations that no longer count, and of tables that are no longer partitions."""
    there, kept = objects().get(source.pk, Objects()), {function.name for function in wanted}
    spare = {
        one: fires for one, fires in there.triggers.items() if one[0] not in kept or one[1] not in watched.relations
    }
    _drop(source.pk, spare, there.bodies.keys() - kept)


@contextmanager
def _briefly(source_id: UUID) -> Iterator[None]:
    with no_longer_than(PATIENCE):
        fetch(LOCK, [source_id.hex])
        yield


def _write_down(row: WatchedTable, relations: Mapping[str, Sequence[str]], lost: Set[str]) -> None:
    now = database_now()
    if lost:
        row.gap_at = now
        row.gap = GAP.format(
            tables=", ".join(sorted(lost)),
            since=f"{row.kept_at:%Y-%m-%d %H:%M:%S}",
            until=f"{now:%Y-%m-%d %H:%M:%S} UTC",
        )
        log.warning("table.gap", source=str(row.source_id), tables=sorted(lost))
    row.relations, row.kept_at = dict(relations), now
    row.save(update_fields=["relations", "kept_at", "gap", "gap_at"])


def _drop(source_id: UUID, triggers: Iterable[tuple[str, int]], functions: Iterable[str]) -> None:
    found = list(triggers)
    for table, name in fetch(NAMES, [[table for _, table in found]]):
        with _briefly(source_id):
            for trigger in (one for one, of in found if of == table):
                _define(f"DROP TRIGGER IF EXISTS {quoted(trigger)} ON {name}")
    if names := list(functions):
        with _briefly(source_id):
            for function in names:
                _define(f"DROP FUNCTION IF EXISTS {quoted(_schema(), function)}()")


def _define(statement: str) -> None:
    """Execute DDL without parameters: a literal in it may contain a percent sign."""
    with connection.cursor() as cursor:
        cursor.execute(statement)


def _schema() -> str:
    [(schema,)] = fetch(SCHEMA)
    return str(schema)


def _source_of(name: str) -> UUID:
    return UUID(name.removeprefix(PREFIX).partition("_")[0])


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
