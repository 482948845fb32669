"""Signals: events that a person or a program sends to one run, which may wait for them."""

from typing import Any
from uuid import UUID

from uuid_utils.compat import uuid7

from agents.kernel.reserved_types import SIGNAL
from triggers.accept import Incoming, accept, builtin_source


def signal(run_id: UUID, name: str, data: Any, by: str) -> UUID:
    """Record a signal to a run, in the caller's transaction or its own; returns the event's id. `runs.actions.signal`
    checks that the run may get one."""
    event = Incoming(
        source_id=builtin_source("manual"),
        ce_source=by,
        ce_id=str(uuid7()),
        type=SIGNAL,
        subject=str(run_id),
        data={"run": str(run_id), "name": name, "data": data},
    )
    [accepted] = accept([event])
    return accepted.event_id
