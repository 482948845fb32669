"""Find schedules that should fire and have no next fire, whatever the cause.

Beat's every look sees a schedule that has neither a next fire nor a reason (`schedule_unarmed`). A walk over all tasks, one
piece at every safety look and then a pause, finds the edits that the row triggers did not see (a restore with triggers disabled,
a replica's role), and what a Beat of an earlier version, which may run as well, has settled otherwise.
"""

import structlog
from django.conf import settings

from runs.db.sql import execute, fetch
from triggers.schedules.own_tasks import FIRE_TASK, WAS_SETTLED_OTHERWISE, WATCHES_TABLES

log = structlog.get_logger(__name__)

PIECE = 1000  # tasks
REARM = """
UPDATE triggers_schedule SET stale = true WHERE id = ANY(ARRAY(
  SELECT id FROM triggers_schedule WHERE due_at IS NULL AND NOT stale AND rest = '' LIMIT 10000 FOR UPDATE SKIP LOCKED))
"""
WALK = f"""
WITH walked AS (
  SELECT id, enabled, task, args FROM django_celery_beat_periodictask WHERE id > %s::int ORDER BY id LIMIT %s::int
), made AS (
  -- One that fired a trigger fires it again; one whose trigger is gone fires nothing.
  INSERT INTO triggers_schedule (task_id, trigger_id, stale)
  SELECT walked.id, fired.id, true FROM walked
  LEFT JOIN triggers_trigger fired ON walked.task = %s::text AND walked.args = jsonb_build_array(fired.slug)::text
  WHERE (walked.task <> %s::text OR fired.id IS NOT NULL)
    AND NOT EXISTS (SELECT FROM triggers_schedule WHERE task_id = walked.id)
  ON CONFLICT DO NOTHING RETURNING id
), marked AS (
  UPDATE triggers_schedule SET stale = true WHERE id IN (
    SELECT schedule.id FROM triggers_schedule schedule JOIN walked task ON task.id = schedule.task_id
    WHERE NOT schedule.stale
      AND (CASE WHEN task.enabled THEN schedule.rest = 'off' ELSE schedule.due_at IS NOT NULL END OR {WAS_SETTLED_OTHERWISE})
    FOR UPDATE OF schedule SKIP LOCKED)
  RETURNING id
)
SELECT CASE WHEN count(*) = %s::int THEN max(id) END, (SELECT count(*) FROM made) + (SELECT count(*) FROM marked), {WATCHES_TABLES}
FROM walked
"""  # noqa: S608  (our own parts)


def rearm() -> int:
    """Mark schedules stale that have neither a next fire nor a reason; return how many."""
    count = execute(REARM)
    log.warning("beat.rearmed", schedules=count)
    return count


class Walk:
    """An endless walk over all tasks, piece by piece. `watches_tables`: whether the last step has found a source that watches a table, or
    what one has left."""

    def __init__(self) -> None:
        self.reached = 0
        self.watches_tables = False

    @property
    def is_at_end(self) -> bool:
        return self.reached == 0

    def step(self) -> int:
        """Look at the next piece; return how many schedules were marked stale or made."""
        adopts = settings.WAKEFUL_ADOPT_PERIODIC_TASKS
        [(reached, found, self.watches_tables)] = fetch(
            WALK, [self.reached, PIECE, FIRE_TASK, FIRE_TASK, adopts, PIECE]
        )
        self.reached = reached or 0
        if found:
            log.warning("beat.reconciled", schedules=found)
        return int(found)
