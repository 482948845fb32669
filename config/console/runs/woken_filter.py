"""The filter of runs by the time of the event that woke them: ids are ordered by it, so that a span is a part of the primary key."""

from datetime import UTC, datetime
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from agents.kernel.ids import first_id_at
from runs.models import Run

FORMAT = "%Y-%m-%dT%H:%MZ"


def interval(start: datetime, end: datetime) -> str:
    """`2026-11-26T20:00Z/2026-11-26T21:00Z`: the end is not part of it."""
    return "/".join(at.astimezone(UTC).strftime(FORMAT) for at in (start, end))


class WokenFilter(admin.SimpleListFilter):
    """By a span of time that another page links. There is nothing to choose: one that is not valid finds all runs."""

    title = "woken"
    parameter_name = "woken"

    def lookups(self, request: HttpRequest, model_admin: object) -> list[tuple[str, str]]:
        return [(value, value.replace("T", " ").replace("/", " – "))] if (value := self._asked()) else []

    def queryset(self, request: HttpRequest, queryset: QuerySet[Run]) -> QuerySet[Run]:
        span = _span(self.value() or "")
        return queryset.filter(id__gte=first_id_at(span[0]), id__lt=first_id_at(span[1])) if span else queryset

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
