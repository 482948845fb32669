"""A schedule's recent fires with their times and outcomes, and its skipped times."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse
from django.utils.safestring import SafeString

from agents.kernel.durations import in_words
from config.console.events.decisions import reason_of as reason_of_decision
from config.console.parts.links import event_link, joined, link, run_link
from config.console.parts.moments import instant, moment
from config.console.parts.sections import Section, Table
from config.console.schedules.words import in_zone, reason_of, stretch_of, zone_of_schedule
from runs.actions.event_runs import runs_of_events
from runs.models import Run
from triggers.accept import builtin_source
from triggers.models import Decision, Event, Schedule, Skip
from triggers.schedules.explain.trail import names_of

SHOWN = 12


@dataclass(frozen=True, kw_only=True)
class Fire:
    """A tick and its outcome."""

    event: Event
    runs: Sequence[Run]
    decisions: Sequence[Decision]

    @property
    def nominal(self) -> datetime:
        return self.event.time or self.event.received_at

    @property
    def due(self) -> datetime:
        """The nominal time, even if the payload that holds it was pruned."""
        due = self.event.data.get("due") if isinstance(self.event.data, dict) else None
        return datetime.fromisoformat(due) if due else self.nominal

    @property
    def late_by(self) -> str:
        """The delay after its due time; a caught-up or backfilled fire is not late."""
        if isinstance(self.event.data, dict) and "backfill" in self.event.data:
            return "backfilled"
        return in_words(max(self.event.received_at - self.due, timedelta()))

    @property
    def outcome(self) -> SafeString | str:
        if self.runs:
            return joined([run_link(run.pk, run.status) for run in self.runs])
        if self.decisions:
            return reason_of_decision(self.decisions[0])
        return "waits for the dispatcher" if self.event.dispatched_at is None else "started no run"


def fires_of(schedule: Schedule, count: int = SHOWN) -> list[Fire]:
    """The schedule's latest ticks, newest first."""
    prefix = f"{schedule.task_id}:"
    ticks = Event.objects.filter(source_id=builtin_source("schedule"), ce_id__startswith=prefix)
    # By the unique index: the ids of one schedule sort by nominal time. The bounds exclude repeated backfills, which have
    # ids of another form.
    ticks = ticks.filter(ce_id__gte=f"{prefix}0", ce_id__lt=f"{prefix}9999").defer("body", "headers").order_by("-ce_id")
    found = [event for name in names_of(schedule) for event in ticks.filter(ce_source=name)[:count]]
    events = sorted(found, key=lambda event: event.ce_id, reverse=True)[:count]
    ids = [event.pk for event in events]
    runs = list(runs_of_events(ids).only("id", "status", "event_ids")) if ids else []
    decisions = list(Decision.objects.filter(event_id__in=ids).order_by("-id"))
    return [
        Fire(
            event=event,
            runs=[run for run in runs if event.pk in run.event_ids],
            decisions=[one for one in decisions if one.event_id == event.pk],
        )
        for event in events
    ]


def recent(schedule: Schedule) -> list[Section]:
    """Tables of recent fires and of skipped times."""
    zone = zone_of_schedule(schedule)
    fires, skips = fires_of(schedule), skips_of(schedule)
    return [
        Table(
            title="Last fires",
            headers=(f"Nominal ({zone})", "Due", "Actual", "Late by", "Outcome", "Event"),
            rows=[
                (
                    link(why_url(schedule.pk, fire.nominal), in_zone(fire.nominal, zone)),
                    instant(fire.due),
                    moment(fire.event.received_at),
                    fire.late_by,
                    fire.outcome,
                    event_link(fire.event.pk),
                )
                for fire in fires
            ],
            empty=_none_yet(schedule),
        ),
        Table(
            title="Times that did not fire",
            note="Consecutive times with the same reason are one row." if skips else "",
            headers=(f"Nominal ({zone})", "Reason", "Decided", ""),
            rows=[
                (
                    stretch_of(skip, zone),
                    reason_of(skip),
                    moment(skip.created_at),
                    link(why_url(schedule.pk, skip.last), "why?"),
                )
                for skip in skips
            ],
            empty="None within the retention period.",
        ),
    ]


def skips_of(schedule: Schedule, count: int = SHOWN) -> list[Skip]:
    return list(schedule.skips.order_by("-last")[:count])


def why_url(schedule_pk: Any, at: datetime | None = None) -> str:
    """The page that explains why a schedule did not run at an instant."""
    query = f"?{urlencode({'at': at.isoformat()})}" if at else ""
    return reverse("admin:triggers_schedule_why", args=[schedule_pk]) + query


def _none_yet(schedule: Schedule) -> str:
    if schedule.trigger_id is None:
        return "It sends a Celery task; results are under “Task results”. Fires so far: " + _times(schedule.fires)
    return "No fire yet."


def _times(count: int) -> str:
    return f"{count:,} times." if count != 1 else "once."
