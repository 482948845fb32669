"""Rows for tests, with sane defaults."""

from typing import Any
from uuid import UUID, uuid4

from django.utils import timezone
from uuid_utils.compat import uuid7

from agents.kernel.ids import run_id
from runs.models import NIL, Run
from runs.states import FINISHED, RunStatus

AGENTS = {"greeter": "1"}  # the agents a worker has code for, and their versions


def make_run(
    *, status: str = RunStatus.QUEUED, event_id: UUID | None = None, trigger: str = "greeter", **fields: Any
) -> Run:
    """A run in one of the states that need no owner; a queued one is ready by default."""
    event_id = event_id or uuid7()
    trigger_id = fields.pop("trigger_id", None) or uuid4()
    if status == RunStatus.QUEUED:
        fields.setdefault("ready_at", timezone.now())
    if status in FINISHED:
        fields.setdefault("finished_at", timezone.now())
    return Run.objects.create(
        id=run_id(trigger_id, event_id, UUID(NIL)),
        agent=fields.pop("agent", trigger),
        trigger=trigger,
        trigger_id=trigger_id,
        event_ids=fields.pop("event_ids", [event_id]),
        root_id=fields.pop("root_id", event_id),
        status=status,
        **fields,
    )


def statuses() -> list[str]:
    """Those of all runs, in their order."""
    return list(Run.objects.order_by("seq").values_list("status", flat=True))
