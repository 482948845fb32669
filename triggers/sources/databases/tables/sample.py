"""An event for a test, as the triggers of a watched table write it: of the table's latest row that meets the condition, or of one that
is made up."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

from django.db import DatabaseError, connection

from runs.db.patience import Locked, no_longer_than
from triggers.accept import Incoming
from triggers.exceptions import Invalid
from triggers.models import Source
from triggers.sources.databases.tables.capture import filled, quoted, terms, type_of
from triggers.sources.databases.tables.watched_table import TableSettings, Watched, find
from triggers.sources.runner import origin_of
from triggers.sources.settings import InvalidSettings, clean

PATIENCE = timedelta(seconds=2)  # for a lock of the table


def sample(source: Source) -> Incoming:
    """Raises Invalid."""
    try:
        settings = clean(TableSettings, source.settings)
        watched = find(settings)
        with no_longer_than(PATIENCE):
            pk, key, row = _row(source, settings, watched)
    except InvalidSettings as wrong:
        raise Invalid([str(wrong)]) from None
    except (Locked, DatabaseError) as error:
        raise Invalid([f"table: cannot be read: {str(error).strip()}"]) from None
    operation = settings.operations[0]
    by_row, by_statement = _of_row(settings, watched, operation, pk, row), _of_statement(watched, operation, pk)
    return Incoming(
        source_id=source.pk,
        ce_source=origin_of(source.slug),
        ce_id=f"test:{uuid4()}",
        type=type_of(settings, watched, operation),
        subject=(watched.name if settings.is_by_statement else f"{watched.name}/{key or ''}")[:500],
        data=by_statement if settings.is_by_statement else by_row,
    )


def _row(source: Source, settings: TableSettings, watched: Watched) -> tuple[Any, str, Any]:
    latest = ", ".join(f"{quoted(name)} DESC" for name in watched.key)
    values = {
        **terms(source.pk, source.slug, settings, watched, side="new"),
        "table": quoted(watched.schema, watched.table),
        "oid": str(watched.oid),
        "order": f"ORDER BY {latest}" if latest else "",
    }
    with connection.cursor() as cursor:
        cursor.execute(filled("sample", values))  # without parameters: a literal of it may have a percent sign
        [found] = cursor.fetchall()
    pk, key, row = found
    return pk, key, row


def _of_row(settings: TableSettings, watched: Watched, operation: str, pk: Any, row: Any) -> dict[str, Any]:
    old = None if operation == "insert" else row
    new = None if operation == "delete" else row
    changed = list(watched.watched) if operation == "update" else []
    cut = {} if row is not None else {"too_large": True}
    return {"pk": pk, "old": old, "new": new, "changed": changed, **cut}


def _of_statement(watched: Watched, operation: str, pk: Any) -> dict[str, Any]:
    pks = [] if pk is None else [pk]
    return {"table": watched.name, "operation": operation, "rows": 1, "pks": pks, "cut": 1 - len(pks)}
