"""Filters of the list of triggers, and what it shows of the last run."""

from typing import ClassVar

from django.db.models import Q

from config.console.parts.filters import ConditionFilter
from triggers.dispatch.failing_triggers import erring

# Uses the index on (trigger, id). With “WHERE trigger = … ORDER BY id” PostgreSQL may scan all runs, newest first, for a
# trigger without runs.
LAST_RUN = """(
    SELECT jsonb_build_object('id', last.id, 'status', last.status)
    FROM (SELECT run.id, run.status, run.trigger FROM runs_run run
          WHERE (run.trigger, run.id) <= (triggers_trigger.slug, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)
          ORDER BY run.trigger DESC, run.id DESC LIMIT 1) last
    WHERE last.trigger = triggers_trigger.slug
)"""


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
