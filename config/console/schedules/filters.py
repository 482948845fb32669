"""Filters of the list of schedules."""

from typing import ClassVar

from django.db.models import Q

from config.console.parts.filters import ConditionFilter
from triggers.models import Schedule
from triggers.models.schedule import PAUSED, SPENT


class StateFilter(ConditionFilter):
    title = "state"
    parameter_name = "state"
    conditions: ClassVar = {
        "active": ("active", Q(task__enabled=True, rest="")),
        "paused": ("paused", PAUSED),
        "spent": ("will not fire again", Q(rest__in=SPENT)),
        "problem": ("cannot fire", Q(rest=Schedule.Rest.PROBLEM)),
    }


class KindFilter(ConditionFilter):
    """Filter by kind; ordinary periodic tasks wake no agent."""

    title = "kind"
    parameter_name = "kind"
    conditions: ClassVar = {
        **{kind.value: (str(kind.label), Q(trigger__isnull=False, kind=kind)) for kind in Schedule.Kind},
        "task": ("ordinary task", Q(trigger=None)),
    }
