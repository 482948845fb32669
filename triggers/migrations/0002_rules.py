"""Rules a constraint cannot say: events do not change, edits of a schedule's rows mark it stale; the built-in sources."""

import uuid

from django.db import migrations

IMMUTABLE = """
CREATE FUNCTION triggers_refuse_event_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'event % is immutable', OLD.id USING ERRCODE = 'check_violation', CONSTRAINT = 'event_immutable';
END $$;
CREATE TRIGGER event_immutable BEFORE UPDATE OF
    id, seq, source_id, ce_source, ce_id, type, subject, "time", data_error, body_sha256, received_at, target_id,
    root_id, cause_event_id, cause_run_id, depth ON triggers_event
  FOR EACH ROW EXECUTE FUNCTION triggers_refuse_event_change();
-- Retention and erasure may take the payload away, never change it.
CREATE TRIGGER event_payload_immutable BEFORE UPDATE OF data, body, headers ON triggers_event
  FOR EACH ROW WHEN (NEW.data IS NOT NULL OR NEW.body IS NOT NULL OR NEW.headers IS NOT NULL)
  EXECUTE FUNCTION triggers_refuse_event_change();
"""
DROP_IMMUTABLE = """
DROP TRIGGER event_payload_immutable ON triggers_event;
DROP TRIGGER event_immutable ON triggers_event;
DROP FUNCTION triggers_refuse_event_change();
"""

# `PeriodicTask.save()` has side effects and `.update()` sends no signal; only the table sees every edit.
STALE = """
CREATE FUNCTION triggers_mark_task_stale() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO triggers_schedule (task_id, catch_up, spec, stale, edited_at, problem)
    VALUES (NEW.id, 'latest', '', true, clock_timestamp(), '')
    ON CONFLICT (task_id) DO UPDATE SET
      stale = true,
      edited_at = excluded.edited_at,
      -- Switched off and on again it begins afresh: what fell in between was not missed.
      spec = CASE WHEN OLD.enabled = NEW.enabled THEN triggers_schedule.spec ELSE '' END,
      next_fire_at = CASE WHEN OLD.enabled = NEW.enabled THEN triggers_schedule.next_fire_at END;
  PERFORM pg_notify('wakeful_beat', '');
  RETURN NULL;
END $$;
CREATE TRIGGER schedule_made AFTER INSERT ON django_celery_beat_periodictask
  FOR EACH ROW EXECUTE FUNCTION triggers_mark_task_stale();
-- `save()` writes every column: what did not change is no edit.
CREATE TRIGGER schedule_stale AFTER UPDATE ON django_celery_beat_periodictask FOR EACH ROW WHEN (
    (OLD.enabled, OLD.crontab_id, OLD.interval_id, OLD.clocked_id, OLD.solar_id, OLD.start_time, OLD.expires, OLD.one_off)
    IS DISTINCT FROM
    (NEW.enabled, NEW.crontab_id, NEW.interval_id, NEW.clocked_id, NEW.solar_id, NEW.start_time, NEW.expires, NEW.one_off))
  EXECUTE FUNCTION triggers_mark_task_stale();

CREATE FUNCTION triggers_mark_tasks_of_rule_stale() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('UPDATE triggers_schedule s SET stale = true, edited_at = clock_timestamp() FROM django_celery_beat_periodictask t'
                 ' WHERE s.task_id = t.id AND t.%I = $1', TG_ARGV[0]) USING NEW.id;
  PERFORM pg_notify('wakeful_beat', '');
  RETURN NULL;
END $$;
CREATE TRIGGER schedule_stale AFTER UPDATE ON django_celery_beat_crontabschedule
  FOR EACH ROW WHEN (OLD.* IS DISTINCT FROM NEW.*) EXECUTE FUNCTION triggers_mark_tasks_of_rule_stale('crontab_id');
CREATE TRIGGER schedule_stale AFTER UPDATE ON django_celery_beat_intervalschedule
  FOR EACH ROW WHEN (OLD.* IS DISTINCT FROM NEW.*) EXECUTE FUNCTION triggers_mark_tasks_of_rule_stale('interval_id');
CREATE TRIGGER schedule_stale AFTER UPDATE ON django_celery_beat_clockedschedule
  FOR EACH ROW WHEN (OLD.* IS DISTINCT FROM NEW.*) EXECUTE FUNCTION triggers_mark_tasks_of_rule_stale('clocked_id');
CREATE TRIGGER schedule_stale AFTER UPDATE ON django_celery_beat_solarschedule
  FOR EACH ROW WHEN (OLD.* IS DISTINCT FROM NEW.*) EXECUTE FUNCTION triggers_mark_tasks_of_rule_stale('solar_id');

INSERT INTO triggers_schedule (task_id, catch_up, spec, stale, problem)
  SELECT id, 'latest', '', true, '' FROM django_celery_beat_periodictask ON CONFLICT DO NOTHING;
"""
DROP_STALE = """
DROP TRIGGER schedule_made ON django_celery_beat_periodictask;
DROP TRIGGER schedule_stale ON django_celery_beat_periodictask;
DROP TRIGGER schedule_stale ON django_celery_beat_crontabschedule;
DROP TRIGGER schedule_stale ON django_celery_beat_intervalschedule;
DROP TRIGGER schedule_stale ON django_celery_beat_clockedschedule;
DROP TRIGGER schedule_stale ON django_celery_beat_solarschedule;
DROP FUNCTION triggers_mark_task_stale();
DROP FUNCTION triggers_mark_tasks_of_rule_stale();
"""


def create_builtin_sources(apps, schema_editor):  # type: ignore[no-untyped-def]
    source = apps.get_model("triggers", "Source")
    for slug in ("schedule", "run", "manual", "cli"):
        source.objects.get_or_create(slug=slug, defaults={"id": uuid.uuid4(), "kind": slug})


class Migration(migrations.Migration):
    dependencies = [("triggers", "0001_initial"), ("django_celery_beat", "0019_alter_periodictasks_options")]

    operations = [
        migrations.RunSQL(IMMUTABLE, DROP_IMMUTABLE),
        migrations.RunSQL(STALE, DROP_STALE),
        migrations.RunPython(create_builtin_sources, migrations.RunPython.noop),
        migrations.RunSQL(
            "ALTER TABLE triggers_event SET (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000)",
            "ALTER TABLE triggers_event RESET (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold)",
        ),
    ]
