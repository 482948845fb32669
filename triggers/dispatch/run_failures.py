"""Count failed runs of triggers, from the outbox, and pause a trigger that reaches its limit."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import structlog
from django.db.models.functions import Now

from runs import alarms
from runs.models import Alarm
from runs.policy import Policy
from runs.ports import PutOff
from runs.states import RunStatus
from triggers.models import Trigger

log = structlog.get_logger(__name__)


def count_failures(payloads: Sequence[dict[str, Any]]) -> None:
    """Update each trigger's failures in a row; pause a trigger that reaches its limit."""
    ended: dict[str, list[dict[str, Any]]] = {}
    for payload in payloads:
        if payload["trigger"] and payload["status"] != RunStatus.CANCELLED:
            ended.setdefault(payload["trigger"], []).append(payload)
    for trigger in locked_triggers(ended):
        _count(trigger, ended[str(trigger.id)])


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
        limit = _pause_after(trigger)
        if limit and failures >= limit and not trigger.is_paused:
            pause_loudly(trigger, failures, payload)
            trigger.refresh_from_db()
    # Write only changes: each write makes the dispatcher reload triggers.
    if failures != trigger.failures_in_a_row:
        Trigger.objects.filter(pk=trigger.pk).update(failures_in_a_row=failures)


def _pause_after(trigger: Trigger) -> int:
    try:
        return Policy.load(trigger.policy).pause_after
    except ValueError:
        return Policy().pause_after  # dispatch records the fault


def pause_loudly(trigger: Trigger, failures: int, payload: dict[str, Any]) -> None:
    reason = f"{failures} failed runs in a row"
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
