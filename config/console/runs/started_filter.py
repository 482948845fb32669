"""The filter of runs whose time from event to start is known, for the number on the first page that counts them."""

from datetime import UTC, datetime
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from agents.kernel.ids import first_id_at
from runs.models import NIL, Run

STARTED = 1_000  # the newest runs of a span, for the time from event to start
FORMAT = "%Y-%m-%dT%H:%MZ"


def interval(start: datetime, end: datetime) -> str:
    """`2026-11-26T20:00Z/2026-11-26T21:00Z`: the end is not part of it."""
    return "/".join(at.astimezone(UTC).strftime(FORMAT) for at in (start, end))


class StartedFilter(admin.SimpleListFilter):
    """The newest runs of a span of time that an event woke, and that started: those whose time from event to start is known. Replays,
    forks and spawned runs have the time of an older one in their ids."""

    title = "started in"
    parameter_name = "started"

    def lookups(self, request: HttpRequest, model_admin: object) -> list[tuple[str, str]]:
        value: Any = self.used_parameters.get(self.parameter_name)
        value = value[-1] if isinstance(value, list) else value
        return [(value, value.replace("T", " ").replace("/", " – "))] if _span(value or "") else []

    def queryset(self, request: HttpRequest, queryset: QuerySet[Run]) -> QuerySet[Run]:
        span = _span(self.value() or "")
        if not span:
            return queryset
        start, end = map(first_id_at, span)
        newest = Run.objects.filter(id__gte=start, id__lt=end).order_by("-id").values("pk")[:STARTED]
        return queryset.filter(
            pk__in=newest, parent_id=None, forked_from_id=None, replay_id=NIL, started_at__isnull=False
        )


def _span(value: str) -> tuple[datetime, datetime] | None:
    try:
        start, end = (datetime.strptime(part, FORMAT).replace(tzinfo=UTC) for part in value.split("/"))
    except ValueError:
        return None
    return start, end
