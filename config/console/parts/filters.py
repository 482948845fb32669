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


class LinkedFilter(admin.SimpleListFilter):
    """A filter by a value that another page links. There is nothing to choose: a value that is not valid finds all rows."""

    def parse(self, text: str) -> Any:
        """The value of the parameter; None: it is not valid."""
        raise NotImplementedError

    def label(self, value: Any) -> str:
        raise NotImplementedError

    def narrow(self, rows: QuerySet[Any], value: Any) -> QuerySet[Any]:
        raise NotImplementedError

    def lookups(self, request: HttpRequest, model_admin: object) -> list[tuple[str, str]]:
        value = self._parsed()
        return [] if value is None else [(self.value() or "", self.label(value))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        value = self._parsed()
        return queryset if value is None else self.narrow(queryset, value)

    def _parsed(self) -> Any:
        text = self.value() or ""
        return self.parse(text) if text and "\0" not in text else None
