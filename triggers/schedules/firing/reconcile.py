"""What should fire and does not know when is found, by whatever that came about.

A schedule without a next fire that does not say why is seen by Beat's every look (`schedule_unarmed`). What the row
triggers were kept from seeing (a restore with triggers disabled, a replica's role) is found by a walk over all tasks,
a piece at every safety look.
"""

import structlog

from runs.db.sql import execute, fetch
from triggers.schedules.rows import FIRE_TASK

log = structlog.get_logger(__name__)

PIECE = 1000  # tasks
REARM = """
UPDATE triggers_schedule SET stale = true WHERE id IN (
  SELECT id FROM triggers_schedule WHERE due_at IS NULL AND NOT stale AND rest = '' LIMIT 10000 FOR UPDATE SKIP LOCKED)
"""
WALK = """
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
    SELECT schedule.id FROM triggers_schedule schedule JOIN walked ON walked.id = schedule.task_id
    WHERE NOT schedule.stale AND CASE WHEN walked.enabled THEN schedule.rest = 'off' ELSE schedule.due_at IS NOT NULL END
    FOR UPDATE OF schedule SKIP LOCKED)
  RETURNING id
)
SELECT max(id), (SELECT count(*) FROM made) + (SELECT count(*) FROM marked) FROM walked
"""


def rearm() -> int:
    """Have those settled that know no next fire and do not say why; how many there are."""
    count = execute(REARM)
    log.warning("beat.rearmed", schedules=count)
    return count


class Walk:
    """Over all tasks, for ever, piece by piece."""

    def __init__(self) -> None:
        self.reached = 0

    def step(self) -> int:
        """Look at the next piece; how many schedules have to be settled for what was found."""
        [(reached, found)] = fetch(WALK, [self.reached, PIECE, FIRE_TASK, FIRE_TASK])
        self.reached = reached or 0
        if found:
            log.warning("beat.reconciled", schedules=found)
        return int(found)
