"""Filters of the list of triggers, and what it shows of the last run."""

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from triggers.dispatch.erring import erring
from triggers.models import Trigger

# Uses the index on (trigger, id). With “WHERE trigger = … ORDER BY id” PostgreSQL may scan all runs, newest first, for a
# trigger without runs.
LAST_RUN = """(
    SELECT jsonb_build_object('id', last.id, 'status', last.status)
    FROM (SELECT run.id, run.status, run.trigger FROM runs_run run
          WHERE (run.trigger, run.id) <= (triggers_trigger.slug, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)
          ORDER BY run.trigger DESC, run.id DESC LIMIT 1) last
    WHERE last.trigger = triggers_trigger.slug
)"""


class StateFilter(admin.SimpleListFilter):
    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: object) -> list[tuple[str, str]]:
        return [
            ("active", "active"),
            ("paused", "paused"),
            ("failing", "failing"),
            ("errors", "with errors in the last day"),
            ("disabled", "disabled"),
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Trigger]) -> QuerySet[Trigger]:
        match self.value():
            case "active":
                return queryset.filter(enabled=True, paused_at=None)
            case "paused":
                return queryset.filter(enabled=True, paused_at__isnull=False)
            case "failing":
                return queryset.filter(failures_in_a_row__gt=0)
            case "errors":
                return queryset.filter(pk__in=erring().values("pk"))
            case "disabled":
                return queryset.filter(enabled=False)
        return queryset
