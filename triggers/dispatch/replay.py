"""Replay: the event goes through the dispatcher again under an id of its own, so it makes new runs."""

from uuid import UUID, uuid4

from django.db import transaction

from runs.audit import record
from runs.db.nudge import nudge_dispatcher
from triggers.exceptions import PayloadRemoved, TriggerDisabled
from triggers.models import Event, Redispatch, Trigger


def replay(event: Event, *, trigger: Trigger | None = None, by: str) -> UUID:
    """Dispatch the event once more, to one trigger or to all that match; the replay's id. Raises TriggerDisabled, or
    PayloadRemoved."""
    if trigger and not trigger.enabled:
        raise TriggerDisabled(trigger.slug)
    replay_id = uuid4()
    with transaction.atomic():
        # Locked: retention, which locks as well, either sees this replay or was before it.
        if not Event.objects.select_for_update(of=("self",)).filter(pk=event.pk, payload_removed_at=None).exists():
            raise PayloadRemoved(event.pk)
        Redispatch.objects.create(event=event, trigger=trigger, replay_id=replay_id, by=by)
        record(by, "replay", event, replay=str(replay_id), **({"trigger": trigger.slug} if trigger else {}))
        nudge_dispatcher()
    return replay_id
