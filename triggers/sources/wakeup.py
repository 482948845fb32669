"""Wakes that runs set for their own trigger: an outbox topic that ends in `accept`."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import structlog

from agents.kernel.reserved_types import WAKEUP as EVENT_TYPE
from runs.attempt.effects import WAKEUP
from runs.db.sql import fetch
from runs.models import OutboxMessage
from runs.models.audit import record_about
from runs.ports import PutOff
from triggers.accept import Incoming, accept, builtin_source
from triggers.models import Trigger

log = structlog.get_logger(__name__)
THERE = "SELECT id FROM triggers_trigger WHERE id = ANY(%s::uuid[])"
KEEP = f"{THERE} FOR KEY SHARE SKIP LOCKED"
BY = "dispatcher"


@dataclass(frozen=True, kw_only=True)
class Ahead:
    """A wake in the future."""

    due_at: datetime
    name: str
    reason: str
    run_id: UUID


def pending(trigger: Trigger, limit: int = 100) -> list[Ahead]:
    """The next wakes that runs of this trigger have set, soonest first."""
    messages = OutboxMessage.objects.filter(topic=WAKEUP, key=str(trigger.pk)).order_by("available_at", "id")
    return [
        Ahead(
            due_at=message.available_at,
            name=message.payload["name"],
            reason=message.payload["reason"],
            run_id=UUID(message.payload["run"]),
        )
        for message in messages[:limit]
    ]


def wake(payloads: Sequence[dict[str, Any]]) -> None:
    """Record the events of wakes that are due."""
    there = _share(payloads)
    accept([_event(payload) for payload in payloads if payload["trigger"] in there])
    for payload in payloads:
        if payload["trigger"] not in there:
            drop_wake(payload, "its trigger is gone")


def _event(payload: dict[str, Any]) -> Incoming:
    return Incoming(
        source_id=builtin_source("wakeup"),
        ce_source="runs",
        ce_id=f"{payload['run']}:{payload['name']}",
        type=EVENT_TYPE,
        data=payload["data"],
        headers={"reason": payload["reason"]} if payload["reason"] else {},
        target_id=UUID(payload["trigger"]),
        cause_run_id=UUID(payload["run"]),
        is_tainted=payload.get("is_tainted", False),
    )


def _share(payloads: Sequence[dict[str, Any]]) -> Collection[str]:
    """Lock the triggers that exist against deletion. PutOff: another session holds a lock on some, e.g. to delete them."""
    wanted = sorted({payload["trigger"] for payload in payloads})
    there = {str(id) for (id,) in fetch(THERE, [wanted])}
    kept = {str(id) for (id,) in fetch(KEEP, [wanted])}
    if there - kept:
        raise PutOff([payload for payload in payloads if payload["trigger"] in there - kept])
    return there


def drop_wake(payload: dict[str, Any], reason: str) -> None:
    log.warning("ahead.dropped", trigger=payload["trigger"], run=payload["run"], name=payload["name"], reason=reason)
    record_about(BY, "drop", "trigger", payload["trigger"], name=payload["name"], run=payload["run"], reason=reason)
