"""The filter of runs by the time of the event that woke them: ids are ordered by it, so that a span is a part of the primary key."""

from datetime import UTC, datetime
from typing import Any

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest

from agents.kernel.ids import first_id_at
from runs.models import NIL, Run

STARTED = 1_000  # the newest runs of a span, for the time from event to start
FORMAT = "%Y-%m-%dT%H:%MZ"


def interval(start: datetime, end: datetime) -> str:
    """`2026-11-26T20:00Z/2026-11-26T21:00Z`: the end is not part of it."""
    return "/".join(at.astimezone(UTC).strftime(FORMAT) for at in (start, end))


def within(start: datetime, end: datetime) -> Q:
    return Q(id__gte=first_id_at(start), id__lt=first_id_at(end))


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
        newest = Run.objects.filter(within(*span)).order_by("-id").values("pk")[:STARTED]
        return queryset.filter(
            pk__in=newest, parent_id=None, forked_from_id=None, replay_id=NIL, started_at__isnull=False
        )


class WokenFilter(admin.SimpleListFilter):
    """By a span of time that another page links. There is nothing to choose: one that is not valid finds all runs."""

    title = "woken"
    parameter_name = "woken"

    def lookups(self, request: HttpRequest, model_admin: object) -> list[tuple[str, str]]:
        return [(value, value.replace("T", " ").replace("/", " – "))] if (value := self._asked()) else []

    def queryset(self, request: HttpRequest, queryset: QuerySet[Run]) -> QuerySet[Run]:
        span = _span(self.value() or "")
        return queryset.filter(within(*span)) if span else queryset

    def _asked(self) -> str:
        value: Any = self.used_parameters.get(self.parameter_name)
        value = value[-1] if isinstance(value, list) else value
        return value if _span(value or "") else ""


def _span(value: str) -> tuple[datetime, datetime] | None:
    try:
        start, end = (datetime.strptime(part, FORMAT).replace(tzinfo=UTC) for part in value.split("/"))
    except ValueError:
        return None
    return start, end
