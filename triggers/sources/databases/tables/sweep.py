"""Find the changes of watched tables that their triggers did not see: those under session_replication_role = replica, while triggers
were disabled, of a restore, and rows beyond the limit of a statement.

A sweep reads the table in pieces, in the order of its primary key, and compares a digest of each row with that of the last sweep. A
row that differs, and whose last event does not say so, is a missed change: it becomes an event with `"missed": true` and without
old values. The first sweep only remembers the rows, and so does one after a change of the columns that it compares.
"""

import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import structlog
from django.db import DatabaseError, connection, transaction
from django.utils import timezone
from psycopg.rows import class_row

from runs.db.sql import database_now, execute
from runs.models.audit import record
from triggers.accept import Incoming, accept
from triggers.models import Source, SweptRow, WatchedTable
from triggers.sources.databases.tables.capture import filled, literal, quoted, terms
from triggers.sources.databases.tables.keep import KIND
from triggers.sources.databases.tables.watched_table import TableSettings, Watched, find
from triggers.sources.databases.values import STYLE
from triggers.sources.runner import origin_of
from triggers.sources.settings import InvalidSettings, clean

log = structlog.get_logger(__name__)

PIECE = 1_000  # rows of a transaction
MOST_EVENTS = 1_000  # of a sweep; more missed changes are counted
NAMED = 10
# As in the functions of the triggers; and a hidden row must not look like one that is gone.
SET = "SELECT " + ", ".join(
    f"set_config('{name}', '{value}', true)"
    for name, value in {"statement_timeout": "30s", "lock_timeout": "2s", "row_security": "off", **STYLE}.items()
)
EARLIER = timedelta(days=1)  # the longest transaction whose changes have events that look older than the last sweep


@dataclass(frozen=True, kw_only=True)
class Looked:
    """A row as a sweep has seen it, or a row that is gone."""

    at: list[str]  # its primary key, for the next piece
    key: str
    primary_key: Any
    new: Any
    operation: str
    is_missed: bool


def sweep_tables(*, budget: timedelta) -> dict[str, str]:
    """Go on with the sweeps that are due; the next call continues where this one ends. Returns, by source, what those that came to
    their end have found."""
    ends = time.monotonic() + budget.total_seconds()
    done = {}
    for source in Source.objects.filter(kind=KIND, enabled=True).order_by("slug"):
        try:
            if (found := sweep(source, until=ends)) is not None:
                done[source.slug] = found
        except (InvalidSettings, DatabaseError) as error:
            said = str(error).strip().partition("\n")[0]
            log.warning("table.not_swept", source=source.slug, error=said)
            WatchedTable.objects.filter(source=source).update(missed=f"failed: {said}", missed_at=database_now())
    return done


def sweep(source: Source, *, until: float = float("inf"), now: bool = False) -> str | None:
    """Run the next piece; return the differences found (empty: none); None: the sweep is not due or not finished."""
    settings = clean(TableSettings, source.settings)
    if settings.is_by_statement:
        forget(source)
        return None
    state, _ = WatchedTable.objects.get_or_create(source=source)
    if not (now or state.sweep_began_at or is_due(state, settings)):
        return None
    watched = find(settings)
    while True:
        with transaction.atomic():
            execute(SET)
            state = WatchedTable.objects.select_for_update(no_key=True).get(source=source)
            has_ended = _go_on(source, settings, watched, state)
            state.save()
        if has_ended:
            return str(state.missed)
        if time.monotonic() >= until:
            return None


def sweep_soon(source: Source, by: str) -> None:
    """Let the next round begin a sweep."""
    with transaction.atomic():
        WatchedTable.objects.update_or_create(source=source, defaults={"sweep_wanted": True})
        record(by, "sweep", source)


def forget(source: Source) -> None:
    """Let the next sweep, if there is one, only remember the rows."""
    if (
        WatchedTable.objects.filter(source=source)
        .exclude(digested=[])
        .update(digested=[], sweep_began_at=None, sweep_wanted=False)
    ):
        SweptRow.objects.filter(source=source).delete()


def is_due(state: WatchedTable, settings: TableSettings) -> bool:
    if state.sweep_wanted:
        return True
    if not settings.sweep_hours or not state.kept_at:
        return False
    return state.swept_at is None or timezone.now() - state.swept_at >= timedelta(hours=settings.sweep_hours)


def _go_on(source: Source, settings: TableSettings, watched: Watched, state: WatchedTable) -> bool:
    """Sweep one piece; True: the sweep has ended."""
    if state.sweep_began_at is None:
        _begin(source, watched, state)
    values = _values(source, settings, watched, state)
    if state.position is not None:
        rows = _look("sweep", values)
        state.position = rows[-1].at if rows else None
    else:
        rows = _look("swept_away", values)
        if not rows:
            _end(state)
            return True
    if state.swept_at is not None:
        _record(
            source,
            settings,
            watched,
            state,
            [row for row in rows if row.is_missed and row.operation in settings.operations],
        )
    return False


def _begin(source: Source, watched: Watched, state: WatchedTable) -> None:
    state.sweep_began_at, state.position, state.found = database_now(), [], {}
    digested = _digested(watched)
    if state.digested != digested:
        SweptRow.objects.filter(source=source).delete()
        state.digested, state.swept_at = digested, None


def _end(state: WatchedTable) -> None:
    found = state.found
    state.sweep_wanted = False
    state.swept_at, state.sweep_began_at = state.sweep_began_at, None
    state.missed = _in_words(found) if found else ""
    state.missed_at = database_now() if found else None


def _record(
    source: Source, settings: TableSettings, watched: Watched, state: WatchedTable, missed: list[Looked]
) -> None:
    found = dict(state.found)
    named, made = found.get("named", []), found.get("made", 0)
    chosen = missed[: max(MOST_EVENTS - made, 0)]
    accept([_incoming(source, watched, row) for row in chosen])
    for row in missed:
        found[row.operation] = found.get(row.operation, 0) + 1
    if missed:
        found["made"] = made + len(chosen)
        found["named"] = [*named, *(f"{watched.name}/{row.key}" for row in missed)][:NAMED]
        log.warning("table.missed", source=source.slug, count=len(missed))
    state.found = found


def _incoming(source: Source, watched: Watched, row: Looked) -> Incoming:
    return Incoming(
        source_id=source.pk,
        ce_source=origin_of(source.slug),
        ce_id=f"sweep:{uuid4()}",
        type=f"db.{watched.name}.{row.operation}",
        subject=f"{watched.name}/{row.key}"[:500],
        data={"pk": row.primary_key, "old": None, "new": row.new, "changed": [], "missed": True},
    )


def _in_words(found: dict[str, Any]) -> str:
    counts = [
        f"{found[name]:,} {name}{'' if found[name] == 1 else 's'}"
        for name in ("insert", "update", "delete")
        if name in found
    ]
    return (
        f"found {' and '.join(counts)} that no trigger had seen, such as {', '.join(found['named'][:3])}. "
        f"{found['made']:,} of them became events."
    )


def _digested(watched: Watched) -> list[str]:
    """Never a column that is excluded: what is guessed can be compared with a digest."""
    return [name for name in watched.watched or watched.columns if name not in watched.excluded]


def _values(source: Source, settings: TableSettings, watched: Watched, state: WatchedTable) -> dict[str, str]:
    key = [quoted(name) for name in watched.key]
    digested = _digested(watched)
    position = ", ".join(map(literal, state.position or []))
    began = state.sweep_began_at or database_now()
    return {
        **terms(source.pk, source.slug, settings, watched, side="new"),
        "table": quoted(watched.schema, watched.table),
        "key_columns": ", ".join(key),
        "key_texts": ", ".join(f"{name}::text" for name in key),
        "after": f"({', '.join(key)}) > ({position})" if position else "true",
        "piece": str(PIECE),
        "began": _instant(began),
        "since": _instant((state.swept_at or began) - EARLIER),
        "digested": _array("new", digested),
        "last_digested": _array("(data -> 'new')", digested),
    }


def _array(row: str, names: list[str]) -> str:
    return f"jsonb_build_array({', '.join(f'{row} -> {literal(name)}' for name in names)})"


def _instant(at: datetime) -> str:
    return f"{literal(at.isoformat())}::timestamptz"


def _look(template: str, values: dict[str, str]) -> list[Looked]:
    with connection.cursor() as cursor:
        cursor.cursor.row_factory = class_row(Looked)
        cursor.execute(filled(template, values))  # without parameters: a literal of it may have a percent sign
        found: list[Looked] = cursor.fetchall()
        return found
