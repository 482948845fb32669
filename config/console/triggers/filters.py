"""Filters of the list of triggers, and what it shows of the last run."""

from typing import ClassVar

from django.db.models import Q

from config.console.parts.filters import ConditionFilter
from config.console.parts.newest_runs import newest_runs_of
from triggers.dispatch.failing_triggers import erring

LAST_RUN = f"""(
    SELECT jsonb_build_object('id', id, 'status', status) FROM runs_run
    WHERE {newest_runs_of("triggers_trigger.slug")} LIMIT 1
)"""  # noqa: S608  (our own parts)


class StateFilter(ConditionFilter):
    title = "state"
    parameter_name = "state"
    conditions: ClassVar = {
        "active": ("active", Q(enabled=True, paused_at=None)),
        "paused": ("paused", Q(enabled=True, paused_at__isnull=False)),
        "failing": ("failing", Q(failures_in_a_row__gt=0)),
        "errors": ("with errors in the last day", Q(pk__in=erring().values("pk"))),
        "disabled": ("disabled", Q(enabled=False)),
    }
