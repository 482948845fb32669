"""Starts of calendars' events that wait in the outbox."""

from datetime import datetime, timedelta
from fnmatch import fnmatchcase
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from agents.kernel.durations import in_words
from runs.models import OutboxMessage
from triggers.models import Source, Trigger
from triggers.sources.calendars import TOPIC
from triggers.sources.calendars.starts import STARTS
from triggers.upcoming.entry import MEETING, Coming, Span

NAMED = 200  # characters of a title


def meetings(span: Span, limit: int, agent: str) -> list[Coming]:
    """The starts that wait; with an agent, those of the sources that its triggers listen to, whatever their filters."""
    rows = OutboxMessage.objects.filter(span.on("available_at"), topic=TOPIC)
    if agent:
        rows = _for_agent(rows, agent)
    columns = ("available_at", "key", "payload__data__title", "payload__starts_at")
    found = list(rows.order_by("available_at", "id").values_list(*columns)[:limit])
    sources = Source.objects.in_bulk({UUID(key) for _, key, *_ in found})
    return [_meeting(sources.get(UUID(key)), at, UUID(key), title, starts_at) for at, key, title, starts_at in found]


def _for_agent(rows: QuerySet[OutboxMessage], agent: str) -> QuerySet[OutboxMessage]:
    triggers = Trigger.objects.filter(agent=agent, enabled=True).values_list("source", "types")
    slugs = {source for source, types in triggers if any(fnmatchcase(STARTS, glob) for glob in types)}
    if "" in slugs:  # one listens to any source
        return rows
    ids = Source.objects.filter(slug__among=sorted(slugs)).values_list("id", flat=True)
    return rows.filter(key__among=[str(id) for id in ids])


def _meeting(source: Source | None, at: datetime, id: UUID, title: Any, starts_at: str) -> Coming:
    before = datetime.fromisoformat(starts_at) - at
    why = f"starts {in_words(before)} later" if before > timedelta() else "starts at this time"
    if source is None or not source.enabled:
        why = "its source is disabled or deleted, so nothing wakes"
    return Coming(
        at=at,
        kind=MEETING,
        name=str(title or "")[:NAMED] or "(no title)",
        why=f"{source.slug}: {why}" if source else why,
        source_id=id if source else None,
    )
