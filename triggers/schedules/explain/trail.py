"""The events of a schedule, and the run or the decision of one."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import QuerySet

from runs.actions.of_event import runs_of_event
from runs.models import NIL, Run
from triggers.accept import builtin_source
from triggers.models import Backfill, BackfillTick, Decision, Event, Redispatch, Revision, Schedule


@dataclass(frozen=True, kw_only=True)
class Trail:
    """`run` is the first that its event started, unless only a replay started any; `decision` the newest; `backfills` are those
    whose range has this nominal time."""

    event: Event
    run: Run | None
    decision: Decision | None
    replays: list[Redispatch]
    backfills: list[BackfillTick]

    @property
    def nominal(self) -> datetime:
        return self.event.time or self.event.received_at

    @property
    def reason(self) -> str:
        """Of the decision."""
        decision = self.decision
        return f"{decision.outcome}: {decision.reason or decision.get_outcome_display()}" if decision else ""

    @property
    def backfill(self) -> Backfill | None:
        """The one that made its event."""
        made = (tick for tick in self.backfills if tick.event_id == self.event.pk)
        return next((tick.backfill for tick in made if tick.outcome != BackfillTick.Outcome.THERE), None)


def trail_of(schedule: Schedule, event: Event) -> Trail:
    runs = list(runs_of_event(event.pk).defer("input", "result").order_by("seq"))
    first = [run for run in runs if str(run.replay_id) == NIL] or runs
    return Trail(
        event=event,
        run=first[0] if first else None,
        decision=Decision.objects.filter(event=event).order_by("-created_at", "-id").first(),
        replays=list(Redispatch.objects.filter(event=event).exclude(replay_id=NIL).order_by("id")),
        backfills=list(_backfilled(schedule).filter(nominal=event.time or event.received_at)),
    )


def names_of(schedule: Schedule) -> list[str]:
    """Its name now, and those it had before: events keep the name of their time."""
    past = Revision.objects.filter(schedule=schedule.pk).values_list("state__name", flat=True).order_by().distinct()
    return sorted({schedule.task.name, *filter(None, past)})


def fired_between(schedule: Schedule, start: datetime, end: datetime) -> QuerySet[Event]:
    """The events of its own nominal times from `start` on and before `end`, to the second, by whatever rule it had then."""
    prefix = f"{schedule.task_id}:"
    return _ticks().filter(
        ce_source__in=names_of(schedule),
        ce_id__gte=prefix + _to_the_second(start),
        ce_id__lt=prefix + _to_the_second(end),
    )


def event_between(schedule: Schedule, start: datetime, end: datetime) -> Event | None:
    """The event of its first nominal time from `start` on and before `end`."""
    # By the unique index: nominal times of one schedule sort as their ids do, to the second.
    prefix = f"{schedule.task_id}:"
    events = _ticks().filter(
        ce_source__in=names_of(schedule),
        ce_id__gte=prefix + _to_the_second(start),
        ce_id__lt=prefix + _to_the_second(end + timedelta(seconds=1)),
    )
    if event := next(_between(events.order_by("time"), schedule, start, end), None):
        return event
    # A time that a backfill fired again has another id.
    tick = _backfilled(schedule).filter(nominal__gte=start, nominal__lt=end).order_by("nominal").first()
    return Event.objects.defer("body", "headers").filter(pk=tick.event_id).first() if tick else None


def _between(events: Iterable[Event], schedule: Schedule, start: datetime, end: datetime) -> Iterator[Event]:
    for event in events:
        if event.time and start <= event.time < end and event.ce_id.startswith(f"{schedule.task_id}:"):
            yield event


def _backfilled(schedule: Schedule) -> QuerySet[BackfillTick]:
    return BackfillTick.objects.select_related("backfill").filter(backfill__schedule=schedule.pk).order_by("id")


def _ticks() -> QuerySet[Event]:
    return Event.objects.filter(source=builtin_source("schedule")).defer("body", "headers")


def _to_the_second(instant: datetime) -> str:
    return f"{instant:%Y-%m-%dT%H:%M:%S}"
