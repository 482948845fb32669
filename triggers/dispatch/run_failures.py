"""Count failed runs of triggers, from the outbox, pause a trigger that reaches its limit, and note incidents."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.db.models.functions import Now

from runs.incidents.note import Failed, Succeeded, Thing, note
from runs.models import Alarm, Incident
from runs.models.policy import Policy
from runs.notifications import alarms
from runs.ports import PutOff
from runs.states import RunStatus
from triggers.models import Trigger

log = structlog.get_logger(__name__)

Kind = Incident.Kind
SAID_OF_PAUSE = "{} failed runs in a row"
URGENT = 2  # the priority up to which an incident of a trigger is urgent


def count_failures(payloads: Sequence[dict[str, Any]]) -> None:
    """Update each trigger's failures in a row; pause a trigger that reaches its limit, and note what failed and succeeded."""
    counted = [payload for payload in payloads if payload["status"] != RunStatus.CANCELLED]
    ended: dict[str, list[dict[str, Any]]] = {}
    for payload in counted:
        if payload["trigger"]:
            ended.setdefault(payload["trigger"], []).append(payload)
    triggers = {str(trigger.id): trigger for trigger in locked_triggers(ended)}
    for id, trigger in triggers.items():
        _count(trigger, ended[id])
    things = {id: _thing_of(trigger) for id, trigger in triggers.items()}
    note([_noted(payload, things.get(payload["trigger"])) for payload in counted])


def _noted(payload: Mapping[str, Any], thing: Thing | None) -> Failed | Succeeded:
    thing = thing or _thing_of_agent(payload["agent"])
    if payload["status"] == RunStatus.SUCCEEDED:
        return Succeeded(thing=thing)
    return Failed(thing=thing, error=payload["error"], run_id=UUID(payload["run"]), is_covered=True)


def _thing_of(trigger: Trigger) -> Thing:
    policy = _policy(trigger)
    return Thing(
        kind=Kind.TRIGGER,
        subject=trigger.slug,
        name=trigger.slug,
        agent=trigger.agent,
        after=policy.incident_after,
        urgency="high" if policy.priority <= URGENT else "normal",
    )


def _thing_of_agent(agent: str) -> Thing:
    """The thing for incidents of a run that another run spawned, or whose trigger is gone: its agent."""
    return Thing(kind=Kind.AGENT, subject=agent, name=agent, agent=agent, after=settings.WAKEFUL_INCIDENT_AFTER)


def locked_triggers(wanted: Mapping[str, Sequence[dict[str, Any]]]) -> list[Trigger]:
    """Lock the existing triggers among these. PutOff: some are locked elsewhere; it has their payloads."""
    triggers = Trigger.objects.filter(id__among=sorted(wanted))
    got = list(triggers.order_by("id").select_for_update(no_key=True, skip_locked=True))
    if len(got) < len(wanted):
        missing = set(wanted) - {str(trigger.id) for trigger in got}
        there = {str(id) for id in triggers.filter(id__among=sorted(missing)).values_list("id", flat=True)}
        if there:
            raise PutOff([payload for id in there for payload in wanted[id]])
    return got


def _count(trigger: Trigger, ended: Sequence[dict[str, Any]]) -> None:
    failures = trigger.failures_in_a_row
    for payload in ended:
        failures = failures + 1 if payload["status"] == RunStatus.FAILED else 0
        limit = _policy(trigger).pause_after
        if limit and failures >= limit and not trigger.is_paused:
            pause_loudly(trigger, failures, payload)
            trigger.refresh_from_db()
    # Write only changes: each write makes the dispatcher reload triggers.
    if failures != trigger.failures_in_a_row:
        Trigger.objects.filter(pk=trigger.pk).update(failures_in_a_row=failures)


def _policy(trigger: Trigger) -> Policy:
    try:
        return Policy.load(trigger.policy)
    except ValueError:
        return Policy()  # dispatch records the fault


def pause_loudly(trigger: Trigger, failures: int, payload: dict[str, Any]) -> None:
    reason = SAID_OF_PAUSE.format(failures)
    if not Trigger.objects.filter(pk=trigger.pk, paused_at=None).update(paused_at=Now(), paused_reason=reason):
        return
    alarms.begin(
        f"trigger-paused:{trigger.slug}",
        severity=Alarm.Severity.BAD,
        text=f"Trigger {trigger.slug} is paused after {reason}. Its events are kept. Last error: {payload['error'][:500]}",
        remedy="Fix the cause, then resume the trigger.",
        sender=trigger.slug,
        run_id=UUID(payload["run"]),
    )
    log.error("trigger.paused", trigger=trigger.slug, reason=reason, error=payload["error"])
