"""One statement begins the transaction of a batch (`triggers.dispatch.begin`). Its parts must be statements that follow one another: each
sees what was committed before it, and a dispatcher before this one has committed when its lock is free."""

from django.db import migrations

# `earlier_*`: what earlier parts of the batch's events may have settled. The locks of the triggers are those that the foreign key of a
# decision or a window takes.
BEGIN_BATCH = """
CREATE FUNCTION triggers_begin_batch(
  lock_space int, lock_number int, event_ids uuid[], trigger_ids uuid[],
  earlier_runs uuid[], earlier_events uuid[], earlier_replays uuid[],
  OUT is_locked boolean, OUT version bigint, OUT changed_by text, OUT backend int, OUT events uuid[], OUT triggers uuid[],
  OUT made uuid[], OUT decided text[]
) LANGUAGE plpgsql AS $$
BEGIN
  is_locked := pg_try_advisory_xact_lock(lock_space, lock_number);
  IF NOT is_locked THEN
    RETURN;
  END IF;
  -- Known row locks are skipped. For others the wait is short, because everything else waits meanwhile.
  PERFORM set_config('lock_timeout', '200ms', true);
  backend := pg_backend_pid();
  SELECT rules.version, rules.changed_by::text INTO version, changed_by FROM triggers_rulesversion rules;
  events := ARRAY(
    SELECT event.id FROM triggers_event event WHERE event.id = ANY(event_ids) AND dispatched_at IS NULL FOR NO KEY UPDATE SKIP LOCKED);
  triggers := ARRAY(
    SELECT trigger.id FROM triggers_trigger trigger WHERE trigger.id = ANY(trigger_ids) FOR KEY SHARE SKIP LOCKED);
  IF earlier_events <> '{}' THEN
    made := ARRAY(SELECT run.id FROM runs_run run WHERE run.id = ANY(earlier_runs));
    decided := ARRAY(
      SELECT concat_ws(' ', decision.event_id, decision.replay_id, decision.trigger_id)
      FROM unnest(earlier_events, earlier_replays) AS earlier(event_id, replay_id)
      JOIN triggers_decision decision USING (event_id, replay_id));
  END IF;
END $$;
-- A role that may only read must not hold the dispatch lock.
REVOKE ALL ON FUNCTION triggers_begin_batch(int, int, uuid[], uuid[], uuid[], uuid[], uuid[]) FROM PUBLIC;
"""


class Migration(migrations.Migration):
    dependencies = [("triggers", "0016_edits_of_sources_are_told")]

    operations = [
        migrations.RunSQL(
            BEGIN_BATCH, "DROP FUNCTION triggers_begin_batch(int, int, uuid[], uuid[], uuid[], uuid[], uuid[])"
        )
    ]
