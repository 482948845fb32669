"""Filters of lists."""

from collections.abc import Mapping
from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest


class ConditionFilter(admin.SimpleListFilter):
    """A filter by conditions: a label and a condition for each value of the URL's parameter."""

    conditions: ClassVar[Mapping[str, tuple[str, Q]]]

    def lookups(self, request: HttpRequest, model_admin: object) -> list[tuple[str, str]]:
        return [(value, label) for value, (label, _) in self.conditions.items()]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        chosen = self.conditions.get(self.value() or "")
        return queryset.filter(chosen[1]) if chosen else queryset
