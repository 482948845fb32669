"""Fire a trigger by hand."""

from typing import Any
from uuid import UUID

from django.db import transaction
from uuid_utils.compat import uuid7

from runs.models.audit import record
from triggers.accept import Incoming, accept, builtin_source
from triggers.exceptions import TriggerDisabled
from triggers.models import Trigger


def fire(trigger: Trigger, *, data: Any = None, by: str) -> UUID:
    """Wake the trigger's agent with an event that targets this trigger only; returns the event's id."""
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
