"""Search for an event that came before a wait for it: before the wait is written, and right after."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import structlog
from django.db import DatabaseError

from agents.journal.protocol import EventRequest
from agents.kernel.reserved_types import RESERVED, SIGNAL
from runs import waits
from runs.claim import Claim
from runs.db.sql import execute
from runs.failpoints import failpoint
from runs.models import Wait
from runs.ports import Sought, ports
from runs.transitions.entries import WaitEntry

log = structlog.get_logger(__name__)

EARLY = 100  # most events that it reads
BEGINNING = datetime(1, 1, 2, tzinfo=UTC)
# The search and its result in one statement: the wait is committed, so that its snapshot is newer.
FOUND_NOTHING = """
WITH found(event_id, searched_to) AS MATERIALIZED ({search})
UPDATE runs_wait SET looked_at = clock_timestamp(), look_failures = 0
WHERE id = (SELECT id FROM runs_wait WHERE run_id = %(run)s::uuid AND key = %(key)s::text AND status = 'open'
            FOR NO KEY UPDATE SKIP LOCKED)
  AND EXISTS (SELECT FROM found WHERE event_id IS NULL AND searched_to IS NULL)
RETURNING {told}
""".replace("{told}", waits.LAZILY)


def find_early(
    run_id: UUID, request: EventRequest, *, after_event: UUID, root: UUID, taken: Sequence[UUID]
) -> UUID | None:
    """The first event that ends a wait of this run before it begins, if it is among the first EARLY of its type since the run's own
    event. A search that fails finds none: the look back after the wait's commit repeats it, with its patience."""
    sought = _sought(run_id, request.type, request.match, request.source, after_event, root, taken, EARLY)
    try:
        return ports.find_event(sought).event_id
    except DatabaseError:
        log.info("wait.not_looked_for_early", run=str(run_id), type=request.type, exc_info=True)
        return None


def has_not_come(claim: Claim, wait: WaitEntry) -> bool:
    """Look back for the wait for an event that this claim has committed, in one statement. False, and nothing is changed: the event
    has come, or this does not show that it has not. Then look back with patience."""
    if wait.kind != Wait.Kind.EVENT or not claim.event_ids:
        return False
    sought = _sought(
        claim.run_id,
        wait.event_type,
        wait.match,
        wait.event_source,
        claim.event_ids[0],
        claim.root_id,
        wait.taken,
        waits.PAGE,
    )
    failpoint("before_look_back")
    search, parameters = ports.search_of(sought)
    statement = FOUND_NOTHING.replace("{search}", search.strip())
    try:
        is_looked_at = execute(statement, {**parameters, "run": claim.run_id, "key": wait.key}) > 0
    except DatabaseError:
        log.info("wait.not_looked_back_at_once", run=str(claim.run_id), type=wait.event_type, exc_info=True)
        return False
    if is_looked_at:
        failpoint("after_look_back")
    return is_looked_at


def _sought(
    run_id: UUID,
    type: str,
    match: Mapping[str, Any] | None,
    source: str,
    after_event: UUID,
    root: UUID,
    taken: Sequence[UUID],
    most: int,
) -> Sought:
    return Sought(
        type=type,
        match=match or {},
        source=RESERVED.get(type, source),
        subject=str(run_id) if type == SIGNAL else "",
        run_id=run_id,
        after_event=after_event,
        since=BEGINNING,
        but=taken,
        root=root,
        most=most,
    )
