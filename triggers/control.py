"""What a person does to a trigger. Admin, API and command line all come through here."""

from typing import Any, Literal
from uuid import UUID

from django.db import connection, transaction
from django.db.models.functions import Now
from uuid_utils.compat import uuid7

from runs.audit import record
from runs.exceptions import IllegalState
from runs.nudge import nudge_dispatcher
from triggers.accept import Incoming, accept, builtin_source
from triggers.exceptions import TriggerDisabled
from triggers.leadership import LOCK
from triggers.models import Decision, Trigger

# A held replay keeps its replay_id: under the nil one it would be taken for the run the event has had before.
OFFER_HELD = """
INSERT INTO triggers_redispatch (event_id, trigger_id, replay_id, by)
SELECT decision.event_id, decision.trigger_id, decision.replay_id, %s::text
FROM triggers_decision decision JOIN triggers_event event ON event.id = decision.event_id
WHERE decision.trigger_id = %s::uuid AND decision.outcome = 'held' AND NOT EXISTS (
  SELECT FROM triggers_redispatch offered
  WHERE offered.event_id = decision.event_id AND offered.trigger_id = decision.trigger_id
    AND offered.replay_id = decision.replay_id AND offered.dispatched_at IS NULL)
ORDER BY event.seq
"""


def fire(trigger: Trigger, *, data: Any = None, by: str) -> UUID:
    """Wake the trigger's agent by an event made for it alone; the event's id."""
    if not trigger.enabled:
        raise TriggerDisabled(trigger.slug)
    event = Incoming(
        source_id=builtin_source("manual"),
        ce_source=by,
        ce_id=str(uuid7()),
        type="manual.fired",
        data=data,
        target_id=trigger.id,
    )
    with transaction.atomic():
        [accepted] = accept([event])
        record(by, "fire", trigger, event=str(accepted.event_id))
    return accepted.event_id


def pause(trigger: Trigger, *, reason: str, by: str) -> Trigger:
    """Hold the trigger's events, from the next dispatch on, until it is resumed."""
    with transaction.atomic():
        changed = Trigger.objects.filter(pk=trigger.pk, paused_at=None).update(paused_at=Now(), paused_reason=reason)
        if not changed:
            raise IllegalState(f"Trigger {trigger.slug} is paused already.", status="paused")
        record(by, "pause", trigger, reason=reason)
    trigger.refresh_from_db()
    return trigger


def resume(trigger: Trigger, *, held: Literal["run", "drop"] = "run", by: str) -> Trigger:
    """Let the trigger's events through again; those held meanwhile are run in their order, or dropped."""
    with transaction.atomic():
        # A batch under way may have read the trigger as paused: what it is holding must be there to be found below.
        wait_for_dispatch()
        changed = Trigger.objects.filter(pk=trigger.pk, paused_at__isnull=False).update(
            paused_at=None, paused_reason="", failures_in_a_row=0
        )
        if not changed:
            raise IllegalState(f"Trigger {trigger.slug} is not paused.", status="active")
        count = _offer_held(trigger, by) if held == "run" else _drop_held(trigger, by)
        record(by, "resume", trigger, held=held, events=count)
        nudge_dispatcher()
    trigger.refresh_from_db()
    return trigger


def wait_for_dispatch() -> None:
    """Let the batch that is under way commit, and keep the next one waiting until this transaction ends."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s::int, %s::int)", LOCK)


def _offer_held(trigger: Trigger, by: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(OFFER_HELD, [by, trigger.pk])
        return int(cursor.rowcount)


def _drop_held(trigger: Trigger, by: str) -> int:
    held = Decision.objects.filter(trigger=trigger, outcome=Decision.Outcome.HELD)
    return held.update(outcome=Decision.Outcome.DROPPED, reason=f"dropped on resume by {by}")
