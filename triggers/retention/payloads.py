"""Taking away what events said, while the events themselves stay: they go on being known, so that nothing is done twice."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from runs.actions.of_event import beside
from runs.db.sql import execute, fetch
from runs.retention.erasure import ERASED

# A reason may quote what an expression made of the event.
REMOVE_REASONS = """
UPDATE triggers_decision SET reason = %(erased)s WHERE event_id = ANY(%(ids)s::uuid[]) AND outcome = 'error'
"""
REMOVE = """
UPDATE triggers_event SET data = NULL, body = NULL, headers = NULL, payload_removed_at = clock_timestamp(),
  data_error = CASE data_error WHEN '' THEN '' ELSE %(erased)s END
WHERE id = ANY(%(ids)s::uuid[]) AND payload_removed_at IS NULL
"""
NEEDS = "run.payload_removed_at IS NULL AND coalesce(run.finished_at >= %(before)s::timestamptz, true)"
# An event is needed while it waits for dispatch, or to be offered again, or in a window, and as long as a run of it
# still has what it was given: the run may be live, or be requeued. A run that took several events along has the id of
# the first; the others' decisions name it; and a durable run's wait names the event it took. OFFSET 0: each event is
# looked up in the indexes by itself, however the planner would rather join whole tables.
NOT_NEEDED = """
SELECT event.id FROM triggers_event event
WHERE event.id = ANY(%(ids)s::uuid[]) AND event.dispatched_at IS NOT NULL
  AND NOT EXISTS (SELECT FROM triggers_redispatch again WHERE again.event_id = event.id AND again.dispatched_at IS NULL OFFSET 0)
  AND NOT EXISTS (
    SELECT FROM triggers_decision decision LEFT JOIN runs_run run ON run.id = decision.run_id
    WHERE decision.event_id = event.id AND (decision.outcome = 'held'
      OR decision.outcome IN ('joined', 'collected') AND run.id IS NOT NULL AND {needs}) OFFSET 0)
  AND event.id NOT IN (SELECT member FROM triggers_window, unnest(event_ids) member WHERE member = ANY(%(ids)s::uuid[]))
  AND NOT EXISTS (
    SELECT FROM runs_run run
    WHERE run.id {of_the_same_time} AND run.event_ids @> ARRAY[event.id] AND {needs} OFFSET 0)
  AND NOT EXISTS (
    SELECT FROM runs_wait wait JOIN runs_run run ON run.id = wait.run_id WHERE wait.event_id = event.id AND {needs} OFFSET 0)
""".replace("{needs}", NEEDS).replace("{of_the_same_time}", beside("event.id"))


def not_needed(event_ids: Sequence[UUID], *, but_by_runs_before: datetime | None = None) -> list[UUID]:
    """Those of the events whose payload nobody will ask for any more. Runs that finished before an instant may be taken
    for such as have lost theirs, to say what will happen once they have."""
    return [id for (id,) in fetch(NOT_NEEDED, {"ids": list(event_ids), "before": but_by_runs_before})]


def remove_payloads(event_ids: Sequence[UUID]) -> int:
    """Take data, body and headers of events away, and texts that quote them, in the caller's transaction; of how many."""
    parameters = {"ids": list(event_ids), "erased": ERASED}
    execute(REMOVE_REASONS, parameters)
    return execute(REMOVE, parameters)
