"""An entry of the list of what wakes next."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet

BY_CLOCK = ("schedule", "heartbeat", "reminder", "task")
OF_RUNS = ("wake", "timer", "retry", "start")
MEETING = "meeting"
KINDS = (*BY_CLOCK, "window", MEETING, *OF_RUNS)
SEEN = 10_000


@dataclass(frozen=True, kw_only=True)
class Coming:
    """Something that will wake an agent, or an ordinary periodic task. `later`: further times of the same schedule;
    `is_endless`: there are more times than were computed."""

    at: datetime
    kind: str
    name: str
    why: str
    nominal: datetime | None = None
    agent: str = ""
    trigger: str = ""
    later: tuple[datetime, ...] = ()
    is_endless: bool = False
    schedule_id: int | None = None
    trigger_id: UUID | None = None
    run_id: UUID | None = None
    source_id: UUID | None = None


def kinds_for(has_perm: Callable[[str], bool]) -> tuple[str, ...]:
    """The kinds that a person with these permissions may see."""
    hidden = () if has_perm("runs.view_run") else OF_RUNS
    # Its title is data of an event.
    return tuple(kind for kind in KINDS if kind not in hidden and (kind != MEETING or has_perm("triggers.view_event")))


@dataclass(frozen=True, kw_only=True)
class Span:
    """A time span, and the current time."""

    start: datetime
    until: datetime
    now: datetime

    @property
    def is_to_come(self) -> bool:
        return self.start > self.now

    def on(self, field: str) -> Q:
        """The condition that a time lies in the span. If the span has begun, late times are included."""
        within = Q(**{f"{field}__lt": self.until})
        return within & Q(**{f"{field}__gte": self.start}) if self.is_to_come else within


def soonest(rows: QuerySet[Any], field: str, limit: int, only: Q) -> QuerySet[Any]:
    """The first rows by a field. Reads only the index on it: if thousands of rows have the same time, a second sort
    column would read them all, and with a join the index might not be used. A filter searches the first SEEN rows."""
    ids = list(rows.order_by(field).values_list("pk", flat=True)[: SEEN if only else limit])
    chosen: QuerySet[Any] = rows.model._default_manager.filter(only, pk__in=ids).order_by(field)
    return chosen[:limit]
