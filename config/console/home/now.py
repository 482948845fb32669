"""What is under way or held at this moment, with the list of each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet
from django.urls import reverse

from config.console.parts.links import listing
from config.console.runs.list import BLOCKED
from runs.models import Run
from runs.states import RunStatus
from triggers.models import Event, Schedule
from triggers.models.schedule import PAUSED
from triggers.schedules.explain.missed_fires import missed_lately

COUNTED = 1_000  # above this it shows “1,000+”: an exact count of a backlog has no use
MISSED = 5


@dataclass(frozen=True, kw_only=True)
class Count:
    label: str
    count: int
    url: str

    @property
    def shown(self) -> str:
        return f"{COUNTED:,}+" if self.count > COUNTED else f"{self.count:,}"


def under_way() -> list[Count]:
    """Without what is not there."""
    queued = Run.objects.filter(status=RunStatus.QUEUED)
    runs = "runs_run"
    counts = [
        _count("running", Run.objects.running(), listing(runs, status__exact="running")),
        _count("ready to start", queued.filter(ready_at__isnull=False), listing(runs, place="ready")),
        _count("delayed by a retry or a rate", queued.filter(due_at__isnull=False), listing(runs, place="due")),
        _count("blocked behind a key", queued.filter(BLOCKED), listing(runs, place="blocked")),
        _count("waiting", Run.objects.filter(status=RunStatus.WAITING), listing(runs, status__exact="waiting")),
        _count(
            "events to dispatch",
            Event.objects.filter(dispatched_at=None),
            listing("triggers_event", state="undispatched"),
        ),
        _count("paused schedules", Schedule.objects.filter(PAUSED), listing("triggers_schedule", state="paused")),
    ]
    return [one for one in [*counts, *_missed()] if one.count]


def _missed() -> Sequence[Count]:
    """Fires of the last day that are explained, by schedule."""
    return [
        Count(
            label=f"fires of {one.name} missed in the last day",
            count=one.count,
            url=reverse("admin:triggers_schedule_why", args=[one.schedule_id]),
        )
        for one in missed_lately(MISSED)
    ]


def _count(label: str, rows: QuerySet[Any], url: str) -> Count:
    return Count(label=label, count=rows.order_by()[: COUNTED + 1].count(), url=url)
