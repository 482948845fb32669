"""`wakeful_task` reads what became of a task of Django's (`triggers.django_tasks`). The caller needs the right to execute it, and no right
to a table of Wakeful's."""

from django.db import migrations

# The newest run of the task: an operator may have replayed its event. A run's id begins with the time of its event.
TASK = """
CREATE FUNCTION wakeful_task(task uuid) RETURNS jsonb LANGUAGE sql STABLE SECURITY DEFINER AS $$
  SELECT jsonb_build_object(
    'data', event.data, 'enqueued_at', event.received_at, 'is_dispatched', event.dispatched_at IS NOT NULL,
    'run', (
      SELECT jsonb_build_object('status', run.status, 'claimed_at', run.claimed_at, 'started_at', run.started_at,
        'finished_at', run.finished_at, 'result', run.result, 'error', run.error,
        'worker', CASE WHEN run.status = 'running' THEN run.worker_id END,
        'attempts', (
          SELECT jsonb_agg(jsonb_build_object('worker', attempt.worker_id, 'outcome', attempt.outcome, 'error', attempt.error,
            'traceback', attempt.traceback, 'started_at', attempt.started_at) ORDER BY attempt.epoch)
          FROM runs_attempt attempt WHERE attempt.run_id = run.id))
      FROM runs_run run
      WHERE run.id BETWEEN (left(replace(task::text, '-', ''), 12) || repeat('0', 20))::uuid
                       AND (left(replace(task::text, '-', ''), 12) || repeat('f', 20))::uuid
        AND run.event_ids @> ARRAY[event.id] AND run.agent = 'django-task'
      ORDER BY run.created_at DESC LIMIT 1),
    'decision', (
      SELECT jsonb_build_object('outcome', decision.outcome, 'reason', decision.reason)
      FROM triggers_decision decision JOIN triggers_trigger trigger ON trigger.id = decision.trigger_id
      WHERE decision.event_id = event.id AND trigger.agent = 'django-task'
      ORDER BY decision.created_at DESC LIMIT 1))
  FROM triggers_event event JOIN triggers_source source ON source.id = event.source_id
  WHERE event.id = task AND event.type = 'django.task' AND source.slug = 'emit'
$$;
-- It runs with Wakeful's rights in sessions of other roles: temporary objects of theirs would come first, unless `pg_temp` is last.
DO $$ BEGIN
  EXECUTE format('ALTER FUNCTION wakeful_task(uuid) SET search_path = pg_catalog, %I, pg_temp', current_schema());
END $$;
REVOKE ALL ON FUNCTION wakeful_task(uuid) FROM PUBLIC;
"""


class Migration(migrations.Migration):
    dependencies = [("triggers", "0024_edits_use_the_index"), ("runs", "0010_one_check_of_a_run")]

    operations = [migrations.RunSQL(TASK, "DROP FUNCTION wakeful_task(uuid)")]
