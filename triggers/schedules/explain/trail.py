"""The events of a schedule, and the run or the decision of one."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import QuerySet

from runs.actions.event_runs import runs_of_event
from runs.models import NIL, Run
from triggers.accept import builtin_source
from triggers.models import Backfill, BackfillTick, Decision, Event, Redispatch, Revision, Schedule


@dataclass(frozen=True, kw_only=True)
class Trail:
    """`run` is the first that its event started, unless only a replay started any; `decision` the newest; `backfills` are those
    whose range has this nominal time."""

    event: Event
    nominal: datetime
    run: Run | None
    decision: Decision | None
    replays: list[Redispatch]
    backfills: list[BackfillTick]

    @property
    def reason(self) -> str:
        """The reason of the event's decision."""
        decision = self.decision
        return f"{decision.outcome}: {decision.reason or decision.get_outcome_display()}" if decision else ""

    @property
    def backfill(self) -> Backfill | None:
        """The one that made its event."""
        made = (tick for tick in self.backfills if tick.event_id == self.event.pk)
        return next((tick.backfill for tick in made if tick.outcome != BackfillTick.Outcome.THERE), None)


def trail_of(schedule: Schedule, event: Event) -> Trail:
    nominal = event.time or event.received_at
    runs = sorted(
        runs_of_event(event.pk).defer("input", "result", "fired"), key=lambda run: (str(run.replay_id) != NIL, run.seq)
    )
    return Trail(
        event=event,
        nominal=nominal,
        run=runs[0] if runs else None,
        decision=Decision.objects.filter(event=event).order_by("-created_at", "-id").first(),
        replays=list(Redispatch.objects.filter(event=event).exclude(replay_id=NIL).order_by("id")),
        backfills=list(_backfilled(schedule).filter(nominal=nominal).order_by("id")),
    )


def names_of(schedule: Schedule) -> list[str]:
    """The schedule's current and former names: events keep the name that was current when they fired."""
    past = Revision.objects.filter(schedule=schedule.pk).values_list("state__name", flat=True).order_by().distinct()
    return sorted({schedule.task.name, *filter(None, past)})


def fired_between(schedule: Schedule, start: datetime, end: datetime) -> QuerySet[Event]:
    """The events of its own nominal times from `start` on and before `end`, to the second, by any rule it had."""
    # By the unique index: nominal times of one schedule sort as their ids do, to the second.
    first, last = (f"{schedule.task_id}:{instant:%Y-%m-%dT%H:%M:%S}" for instant in (start, end))
    ticks = Event.objects.filter(source=builtin_source("schedule"), ce_source__in=names_of(schedule))
    return ticks.filter(ce_id__gte=first, ce_id__lt=last).defer("body", "headers")


def event_between(schedule: Schedule, start: datetime, end: datetime) -> Event | None:
    """The event of its first nominal time from `start` on and before `end`."""
    ticks = fired_between(schedule, start, end + timedelta(seconds=1)).filter(time__gte=start, time__lt=end)
    if event := ticks.filter(ce_id__startswith=f"{schedule.task_id}:").order_by("time").first():
        return event
    # A time that a backfill fired again has another id.
    tick = _backfilled(schedule).filter(nominal__gte=start, nominal__lt=end).order_by("nominal", "id").first()
    return Event.objects.defer("body", "headers").filter(pk=tick.event_id).first() if tick else None


def _backfilled(schedule: Schedule) -> QuerySet[BackfillTick]:
    return BackfillTick.objects.select_related("backfill").filter(backfill__schedule=schedule.pk)
