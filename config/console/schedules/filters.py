"""Filters of the list of schedules."""

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from triggers.models import Schedule
from triggers.models.schedule import PAUSED, SPENT

TASKS = "task"


class StateFilter(admin.SimpleListFilter):
    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: object) -> list[tuple[str, str]]:
        return [
            ("active", "active"),
            ("paused", "paused"),
            ("spent", "will not fire again"),
            ("problem", "cannot fire"),
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> QuerySet[Schedule]:
        match self.value():
            case "active":
                return queryset.filter(task__enabled=True, rest="")
            case "paused":
                return queryset.filter(PAUSED)
            case "spent":
                return queryset.filter(rest__in=SPENT)
            case "problem":
                return queryset.filter(rest=Schedule.Rest.PROBLEM)
        return queryset


class KindFilter(admin.SimpleListFilter):
    """Filter by kind; ordinary periodic tasks wake no agent."""

    title = "kind"
    parameter_name = "kind"

    def lookups(self, request: HttpRequest, model_admin: object) -> list[tuple[str, str]]:
        return [*((kind.value, str(kind.label)) for kind in Schedule.Kind), (TASKS, "ordinary task")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> QuerySet[Schedule]:
        match self.value():
            case None:
                return queryset
            case "task":
                return queryset.filter(trigger=None)
        return queryset.filter(trigger__isnull=False, kind=self.value())
