"""Fire a trigger by hand."""

import json
from typing import Any
from uuid import UUID

from django.db import transaction
from uuid_utils.compat import uuid7

from agents.kernel.report import Report
from runs.models.audit import record
from triggers.accept import Incoming, accept, builtin_source
from triggers.exceptions import TriggerDisabled
from triggers.models import Trigger
from triggers.reports.destinations import require_known


def fire(trigger: Trigger, *, data: Any = None, report: Report | None = None, by: str) -> UUID:
    """Wake the trigger's agent with an event that targets this trigger only; returns the event's id. With `report`, the end of its
    run is reported, also if no run comes of it. Invalid: the report names a recipient or a subscription that does not exist."""
    if not trigger.enabled:
        raise TriggerDisabled(trigger.slug)
    if report:
        require_known([report])
    event = Incoming(
        source_id=builtin_source("manual"),
        ce_source=by,
        ce_id=str(uuid7()),
        type="manual.fired",
        data=data,
        target_id=trigger.id,
        headers={"reports": json.dumps([{**report.dump(), "by": by}])} if report else {},
    )
    with transaction.atomic():
        [accepted] = accept([event])
        record(by, "fire", trigger, event=str(accepted.event_id))
    return accepted.event_id
