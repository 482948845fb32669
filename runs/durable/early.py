"""Search for an event that ends a wait before it begins."""

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

import structlog
from django.db import DatabaseError

from agents.journal.protocol import EventRequest
from agents.kernel.reserved_types import RESERVED, SIGNAL
from runs.ports import Sought, ports

log = structlog.get_logger(__name__)

EARLY = 100  # most events that it reads
BEGINNING = datetime(1, 1, 2, tzinfo=UTC)


def find_early(
    run_id: UUID, request: EventRequest, *, after_event: UUID, root: UUID, taken: Sequence[UUID]
) -> UUID | None:
    """The first event that ends a wait of this run before it begins, if it is among the first EARLY of its type since the run's own
    event. A search that fails finds none: the look back after the wait's commit repeats it, with its patience."""
    sought = Sought(
        type=request.type,
        match=request.match or {},
        source=RESERVED.get(request.type, request.source),
        subject=str(run_id) if request.type == SIGNAL else "",
        run_id=run_id,
        after_event=after_event,
        since=BEGINNING,
        but=taken,
        root=root,
        most=EARLY,
    )
    try:
        return ports.find_event(sought).event_id
    except DatabaseError:
        log.info("wait.not_looked_for_early", run=str(run_id), type=request.type, exc_info=True)
        return None
