"""Rows as they look when they have been there for a while."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.utils import timezone
from uuid_utils.compat import uuid7

from runs.db.sql import execute
from runs.models import NIL, Attempt, AuditEntry, ProcessedEvent, Run
from runs.states import FINISHED, RunStatus
from tests.support.runs import make_run
from triggers.models import Event, Source


def ago(**length: float) -> datetime:
    return timezone.now() - timedelta(**length)


def id_of(instant: datetime) -> UUID:
    """An event's id, had it come then."""
    return uuid7(nanoseconds=int(instant.timestamp() * 1e9))


def old_event(days: float | datetime, **fields: Any) -> Event:
    """An event that came so many days ago, or at that time, and has long been dispatched."""
    came = days if isinstance(days, datetime) else ago(days=days)
    id = id_of(came)
    values = {
        "source_id": Source.objects.get(slug="cli").id,  # uncached: these rows are made in several databases
        "ce_source": "cli:test",
        "ce_id": str(id),
        "type": "visitor.came",
        "data": {"name": "Ada"},
        "body": b'{"name": "Ada"}',
        "headers": {"X-From": "Ada"},
        "received_at": came,
        "dispatched_at": came,
        "root_id": id,
        **fields,
    }
    return Event.objects.create(id=id, **values)


def old_run(event: Event, *, days: float = 0, status: str = RunStatus.SUCCEEDED, **fields: Any) -> Run:
    """A run of the event; a finished one finished so many days ago, and a succeeded one stands in the ledger."""
    if status in FINISHED:
        fields.setdefault("finished_at", ago(days=days))
    fields = {"input": {"name": "Ada"}, "result": {"hello": "Ada"}, "error": "Ada was away", **fields}
    run = make_run(event_id=event.id, status=status, root_id=fields.pop("root_id", event.root_id), **fields)
    Attempt.objects.create(
        run=run, epoch=1, number=1, started_at=ago(days=days), ended_at=ago(days=days), outcome="failed",
        error="Ada was away", traceback="… Ada …",
    )  # fmt: skip
    if status == RunStatus.SUCCEEDED:
        ProcessedEvent.objects.create(
            event_id=event.id, consumer=run.trigger, replay_id=NIL, run_id=run.id, processed_at=ago(days=days)
        )
    return run


def date_entries(entries: QuerySet[AuditEntry], at: datetime) -> None:
    """Audit entries as if they had been made at another time: the database itself refuses to change them."""
    execute("ALTER TABLE runs_auditentry DISABLE TRIGGER audit_immutable")
    entries.update(at=at)
    execute("ALTER TABLE runs_auditentry ENABLE TRIGGER audit_immutable")
