"""Remove payloads of events. The events themselves stay, so that a redelivery is still recognised."""

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from runs.actions.event_runs import beside
from runs.db.sql import execute, fetch
from runs.retention.erasure import ERASED
from triggers.models import EventDelivery

# A reason may quote a value from the event.
REMOVE_REASONS = """
UPDATE triggers_decision SET reason = %(erased)s WHERE event_id = ANY(%(ids)s::uuid[]) AND outcome IN ('error', 'quiet')
"""
# The page of a trigger shows the newest reason: it goes with its event, unless the gate has answered to another one since.
REMOVE_LAST_REASONS = """
UPDATE triggers_gate gate SET last_reason = %(erased)s FROM triggers_decision decision
WHERE decision.event_id = ANY(%(ids)s::uuid[]) AND decision.outcome = 'quiet' AND decision.trigger_id = gate.trigger_id
  AND gate.last_at <= decision.created_at
"""
# An answer of an endpoint may quote the event, and so may the error of a filter.
REMOVE_ANSWERS = """
UPDATE triggers_eventdelivery SET tries = '[]', reason = CASE status WHEN 'error' THEN %(erased)s ELSE reason END
WHERE event_id = ANY(%(ids)s::uuid[])
"""
REMOVE = """
UPDATE triggers_event SET data = NULL, body = NULL, headers = NULL, payload_removed_at = clock_timestamp(),
  data_error = CASE data_error WHEN '' THEN '' ELSE %(erased)s END
WHERE id = ANY(%(ids)s::uuid[]) AND payload_removed_at IS NULL
"""
NEEDS = "run.payload_removed_at IS NULL AND coalesce(run.finished_at >= %(before)s::timestamptz, true)"
# An event is needed while it waits for dispatch, is held, or is in a window, and as long as one of its runs has its input:
# the run may be live or be requeued. The id of a run with several events is made from the first; decisions of the others
# name the run, and a wait names the event that ended it. OFFSET 0 makes PostgreSQL look up each event in the indexes
# instead of joining whole tables.
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
    """The events whose payload is no longer needed. `but_by_runs_before`: ignore runs that finished before this instant, to
    predict the result after their payloads are removed."""
    return [id for (id,) in fetch(NOT_NEEDED, {"ids": list(event_ids), "before": but_by_runs_before})]


def not_leaving(event_ids: Sequence[UUID]) -> list[UUID]:
    """The events that wait for no subscription. An erasure does not wait: it calls those deliveries off."""
    open_ = EventDelivery.objects.filter(event__id__among=list(event_ids), due_at__isnull=False)
    waiting = set(open_.values_list("event_id", flat=True)) if event_ids else set()
    return [id for id in event_ids if id not in waiting]


def remove_payloads(event_ids: Sequence[UUID]) -> int:
    """Remove data, body and headers of events, and reasons that quote them, in the caller's transaction; returns the count."""
    parameters = {"ids": list(event_ids), "erased": ERASED}
    execute(REMOVE_LAST_REASONS, parameters)
    execute(REMOVE_REASONS, parameters)
    execute(REMOVE_ANSWERS, parameters)
    return execute(REMOVE, parameters)
