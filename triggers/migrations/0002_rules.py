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
  INSERT INTO triggers_schedule (task_id, catch_up, spec, stale) VALUES (NEW.id, 'latest', '', true)
    ON CONFLICT (task_id) DO UPDATE SET stale = true;
  PERFORM pg_notify('wakeful_beat', '');
  RETURN NULL;
END $$;
CREATE TRIGGER schedule_stale AFTER INSERT OR UPDATE OF
    enabled, crontab_id, interval_id, clocked_id, solar_id, start_time, expires, one_off
  ON django_celery_beat_periodictask FOR EACH ROW EXECUTE FUNCTION triggers_mark_task_stale();

CREATE FUNCTION triggers_mark_tasks_of_rule_stale() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  EXECUTE format('UPDATE triggers_schedule s SET stale = true FROM django_celery_beat_periodictask t'
                 ' WHERE s.task_id = t.id AND t.%I = $1', TG_ARGV[0]) USING NEW.id;
  PERFORM pg_notify('wakeful_beat', '');
  RETURN NULL;
END $$;
CREATE TRIGGER schedule_stale AFTER UPDATE ON django_celery_beat_crontabschedule
  FOR EACH ROW EXECUTE FUNCTION triggers_mark_tasks_of_rule_stale('crontab_id');
CREATE TRIGGER schedule_stale AFTER UPDATE ON django_celery_beat_intervalschedule
  FOR EACH ROW EXECUTE FUNCTION triggers_mark_tasks_of_rule_stale('interval_id');
CREATE TRIGGER schedule_stale AFTER UPDATE ON django_celery_beat_clockedschedule
  FOR EACH ROW EXECUTE FUNCTION triggers_mark_tasks_of_rule_stale('clocked_id');
CREATE TRIGGER schedule_stale AFTER UPDATE ON django_celery_beat_solarschedule
  FOR EACH ROW EXECUTE FUNCTION triggers_mark_tasks_of_rule_stale('solar_id');

INSERT INTO triggers_schedule (task_id, catch_up, spec, stale)
  SELECT id, 'latest', '', true FROM django_celery_beat_periodictask ON CONFLICT DO NOTHING;
"""
DROP_STALE = """
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
