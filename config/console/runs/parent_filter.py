"""The filter of runs by the run that spawned them."""

from typing import Any
from uuid import UUID

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from config.console.parts.links import short
from runs.models import Run


class ParentFilter(admin.SimpleListFilter):
    """By a parent that another page links. There is nothing to choose: one that is not valid finds all runs."""

    title = "children of"
    parameter_name = "parent"

    def lookups(self, request: HttpRequest, model_admin: object) -> list[tuple[str, Any]]:
        value = self._asked()
        return [(str(value), short(value))] if value else []

    def queryset(self, request: HttpRequest, queryset: QuerySet[Run]) -> QuerySet[Run]:
        value = self._asked()
        return queryset.filter(parent_id=value) if value else queryset

    def _asked(self) -> UUID | None:
        value: Any = self.used_parameters.get(self.parameter_name)
        try:
            return UUID(value[-1] if isinstance(value, list) else value)
        except (TypeError, ValueError, AttributeError, IndexError):
            return None
