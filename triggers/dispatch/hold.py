"""Pause and resume a trigger; called by console, API and command line."""

from typing import Literal

from django.db import transaction
from django.db.models.functions import Now

from agents.guards.atomic import not_in_atomic_body
from runs.exceptions import IllegalState
from runs.models.audit import record
from triggers.dispatch import offers
from triggers.models import Trigger


@not_in_atomic_body
def pause(trigger: Trigger, *, reason: str, by: str) -> Trigger:
    """Hold the trigger's events until it is resumed."""
    with transaction.atomic():
        changed = Trigger.objects.filter(pk=trigger.pk, paused_at=None).update(paused_at=Now(), paused_reason=reason)
        if not changed:
            raise IllegalState(f"Trigger {trigger.slug} is already paused.", status="paused")
        record(by, "pause", trigger, reason=reason)
    trigger.refresh_from_db()
    return trigger


@not_in_atomic_body
def resume(trigger: Trigger, *, held: Literal["run", "drop"] = "run", by: str) -> Trigger:
    """Resume the trigger. The dispatcher runs the held events in order, or drops them; with many events this takes a
    while."""
    with transaction.atomic():
        changed = Trigger.objects.filter(pk=trigger.pk, paused_at__isnull=False).update(
            paused_at=None, paused_reason="", failures_in_a_row=0, resuming_at=Now() if held == "run" else None
        )
        if not changed:
            raise IllegalState(f"Trigger {trigger.slug} is not paused.", status="active")
        record(by, "resume", trigger, held=held, events=offers.offer_held(trigger, drop=held == "drop", by=by))
    trigger.refresh_from_db()
    return trigger
