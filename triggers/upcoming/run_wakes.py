"""Upcoming wakes because of runs: wakes, windows, timers, delayed runs."""

from datetime import datetime
from typing import cast
from uuid import UUID

from django.db.models import Q

from agents.kernel.reserved_types import SIGNAL
from runs.attempt.effects import WAKEUP
from runs.models import OutboxMessage, Run, Wait
from runs.states import RunStatus
from triggers.models import Trigger, Window
from triggers.upcoming.entry import Coming, Span, soonest


def wakes(span: Span, limit: int, agent: str) -> list[Coming]:
    rows = OutboxMessage.objects.filter(span.on("available_at"), topic=WAKEUP)
    if agent:
        rows = rows.filter(
            key__among=[str(id) for id in Trigger.objects.filter(agent=agent).values_list("id", flat=True)]
        )
    columns = ("available_at", "key", "payload__run", "payload__reason", "payload__name")
    found = list(rows.order_by("available_at", "id").values_list(*columns)[:limit])
    triggers = Trigger.objects.in_bulk({UUID(key) for _, key, *_ in found})
    return [_wake(triggers.get(UUID(key)), at, UUID(key), run, reason, name) for at, key, run, reason, name in found]


def _wake(trigger: Trigger | None, at: datetime, id: UUID, run: str, reason: str, name: str) -> Coming:
    return Coming(
        at=at,
        kind="wake",
        name=trigger.slug if trigger else str(id),
        agent=trigger.agent if trigger else "",
        trigger=trigger.slug if trigger else "",
        why=(reason or f"set by a run as {name}") if trigger else "its trigger is deleted, so nothing wakes",
        trigger_id=id,
        run_id=UUID(run),
    )


def windows(span: Span, limit: int, agent: str) -> list[Coming]:
    rows = Window.objects.filter(span.on("due_at"))
    found = soonest(rows, "due_at", limit, Q(trigger__agent=agent) if agent else Q())
    return [_window(window) for window in found.select_related("trigger").defer("input")]


def _window(window: Window) -> Coming:
    number = len(window.event_ids)
    events = "an event waits" if number == 1 else f"{number} events wait"
    moved = "" if window.closes_at in (None, window.due_at) else ", unless another event comes"
    return Coming(
        at=window.due_at,
        kind="window",
        name=window.trigger.slug,
        agent=window.trigger.agent,
        trigger=window.trigger.slug,
        why=f"{events} to become one run{moved}",
        trigger_id=window.trigger_id,
    )


def timers(span: Span, limit: int, agent: str) -> list[Coming]:
    rows = Wait.objects.filter(span.on("due_at"), status=Wait.Status.OPEN)
    found = soonest(rows, "due_at", limit, Q(run__agent=agent) if agent else Q()).select_related("run")
    columns = (
        "due_at",
        "kind",
        "key",
        "event_type",
        "match",
        "children",
        "run__agent",
        "run__trigger",
        "run__trigger_id",
    )
    return [_timer(wait) for wait in found.only(*columns)]


def _timer(wait: Wait) -> Coming:
    return Coming(
        at=cast(datetime, wait.due_at),
        kind="timer",
        name=wait.key,
        agent=wait.run.agent,
        trigger=wait.run.trigger,
        why=_waited_for(wait),
        trigger_id=wait.run.trigger_id,
        run_id=wait.run_id,
    )


def _waited_for(wait: Wait) -> str:
    match wait.kind:
        case Wait.Kind.TIME:
            return "its sleep ends"
        case Wait.Kind.APPROVAL:
            return "its approval times out"
        case Wait.Kind.CHILDREN:
            return f"its wait for {len(wait.children)} children times out"
        case Wait.Kind.BUDGET:
            return "the next window of its budget begins"
        case Wait.Kind.SESSION:
            return f"its wait for session {(wait.asked or {}).get('session', '')} times out"
    what = f"signal {(wait.match or {}).get('name')}" if wait.event_type == SIGNAL else wait.event_type
    return f"its wait for {what} times out"


def put_off(span: Span, limit: int, agent: str) -> list[Coming]:
    rows = Run.objects.filter(span.on("due_at"), status=RunStatus.QUEUED)
    found = soonest(rows, "due_at", limit, Q(agent=agent) if agent else Q())
    return [_of_run(run) for run in found.only("due_at", "agent", "trigger", "trigger_id", "attempt", "error")]


def _of_run(run: Run) -> Coming:
    error = run.error.strip().splitlines()[0][:200] if run.error.strip() else ""
    retried = f"attempt {run.attempt} failed" + (f": {error}" if error else "")
    return Coming(
        at=cast(datetime, run.due_at),
        kind="retry" if run.attempt else "start",
        name=run.trigger or run.agent,
        agent=run.agent,
        trigger=run.trigger,
        why=retried if run.attempt else "the rate of its trigger lets it start at this time",
        trigger_id=run.trigger_id,
        run_id=run.pk,
    )
