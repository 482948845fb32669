"""What falls due by the clock alone, and when the next of it does."""

from dataclasses import dataclass
from datetime import timedelta

from runs.lease import patience
from runs.sql import execute, fetch

LOOK = """
SELECT
  EXISTS (SELECT FROM runs_run WHERE status = 'queued' AND ready_at IS NOT NULL),
  EXISTS (SELECT FROM runs_run run JOIN runs_worker worker ON worker.id = run.worker_id
          WHERE run.status = 'running' AND worker.stopped_at IS NOT NULL),
  (SELECT min(due_at) FROM runs_run WHERE status = 'queued' AND due_at IS NOT NULL) - clock_timestamp(),
  (SELECT min(available_at) FROM runs_outboxmessage) - clock_timestamp(),
  (SELECT min(seen_at + CASE kind WHEN 'worker' THEN %(lease)s::interval ELSE %(others)s::interval END)
   FROM runs_worker WHERE stopped_at IS NULL) - clock_timestamp()
"""

# A backoff with a slot keeps its place; one without a key needs none.
WAKE = """
UPDATE runs_run SET ready_at = clock_timestamp(), due_at = NULL
WHERE id IN (
  SELECT id FROM runs_run
  WHERE status = 'queued' AND due_at <= clock_timestamp() AND (key IS NULL OR slot IS NOT NULL)
  ORDER BY due_at LIMIT %s::int FOR UPDATE SKIP LOCKED)
"""


@dataclass(frozen=True, kw_only=True)
class Look:
    """One look at all that `runs` may have to do; the timedeltas say when (past: now), None never."""

    ready: bool
    lost: bool
    due: timedelta | None
    outbox: timedelta | None
    lease_expiry: timedelta | None

    @property
    def next(self) -> timedelta | None:
        return min((wait for wait in (self.due, self.outbox, self.lease_expiry) if wait is not None), default=None)


def look() -> Look:
    [(ready, lost, due, outbox, lease_expiry)] = fetch(LOOK, patience())
    return Look(ready=ready, lost=lost, due=due, outbox=outbox, lease_expiry=lease_expiry)


def is_due(wait: timedelta | None) -> bool:
    return wait is not None and wait <= timedelta()


def wake_due(limit: int) -> int:
    """Make the backoffs that are over ready again; how many."""
    return execute(WAKE, [limit])
