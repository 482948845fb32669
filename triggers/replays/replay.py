"""Replay: dispatch an event again with its own replay id, so that it starts new runs."""

from uuid import UUID, uuid4

from django.db import transaction

from runs.db.nudge import nudge_dispatcher
from runs.models.audit import record
from triggers.exceptions import PayloadRemoved, TriggerDisabled
from triggers.models import Event, Redispatch, Trigger


def replay(event: Event, *, trigger: Trigger | None = None, by: str) -> UUID:
    """Dispatch the event again, to one trigger or to all that match; returns the replay's id. Raises TriggerDisabled and
    PayloadRemoved."""
    if trigger and not trigger.enabled:
        raise TriggerDisabled(trigger.slug)
    replay_id = uuid4()
    with transaction.atomic():
        # Locked, as in retention: it either sees this replay or was earlier.
        if not Event.objects.select_for_update(of=("self",)).filter(pk=event.pk, payload_removed_at=None).exists():
            raise PayloadRemoved(event.pk)
        Redispatch.objects.create(event=event, trigger=trigger, replay_id=replay_id, by=by)
        record(by, "replay", event, replay=str(replay_id), **({"trigger": trigger.slug} if trigger else {}))
        nudge_dispatcher()
    return replay_id
