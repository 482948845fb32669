"""A run whose policy has reports leaves a message for them in the transaction that ends it: that of its owner, a rescuer, a person, or
a process of a version that knows no reports. Without a condition of the trigger, because each statement of PostgreSQL reads
and plans a condition again."""

from django.db import migrations

# The message holds all of the end that a report needs: a requeue may have begun the run again before the message is read. Like
# `run.finished`, it is read on a grid of half seconds, so that many ends are one piece of work.
REPORT = """
CREATE FUNCTION runs_report_end() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  reports jsonb;
  size int;
BEGIN
  IF NEW.finished_at IS NULL OR OLD.finished_at IS NOT NULL OR NOT NEW.policy ? 'reports' THEN
    RETURN NULL;
  END IF;
  reports := jsonb_path_query_array(NEW.policy->'reports', '$[*] ? (@."on" == "end" || @."on" == $on)',
    jsonb_build_object('on', CASE WHEN NEW.status = 'succeeded' THEN 'success' ELSE 'failure' END), true);
  IF reports = '[]' THEN
    RETURN NULL;
  END IF;
  size := octet_length(NEW.result::text);
  INSERT INTO runs_outboxmessage (topic, key, payload, attempts, last_error, available_at)
  VALUES ('run.report', NEW.id::text, jsonb_build_object(
    'reports', reports, 'run', NEW.id, 'epoch', NEW.epoch, 'agent', NEW.agent, 'trigger', NEW.trigger, 'priority', NEW.priority,
    'status', NEW.status, 'reason', NEW.status_reason, 'error', left(NEW.error, 2000), 'attempt', NEW.attempt,
    'result', CASE WHEN size <= 16384 THEN NEW.result END, 'result_bytes', size,
    'started_at', NEW.started_at, 'finished_at', NEW.finished_at,
    'root', NEW.root_id, 'event', NEW.event_ids[cardinality(NEW.event_ids)], 'depth', NEW.depth, 'chain', NEW.chain,
    'is_tainted', NEW.is_tainted
  ), 0, '', date_bin('500 ms', clock_timestamp(), 'epoch') + interval '500 ms');
  RETURN NULL;
END $$;
CREATE TRIGGER run_reports_its_end AFTER UPDATE OF finished_at ON runs_run FOR EACH ROW EXECUTE FUNCTION runs_report_end();
"""
NO_REPORT = """
DROP TRIGGER run_reports_its_end ON runs_run;
DROP FUNCTION runs_report_end();
"""


class Migration(migrations.Migration):
    dependencies = [("runs", "0011_connections")]

    operations = [migrations.RunSQL(REPORT, NO_REPORT)]
