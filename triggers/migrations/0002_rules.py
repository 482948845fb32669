"""Rules a constraint cannot say: events do not change, edits of a schedule's rows mark it stale; the built-in sources."""

import uuid

from django.db import migrations

IMMUTABLE = """
CREATE FUNCTION triggers_refuse_event_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'event % is immutable', OLD.id USING ERRCODE = 'check_violation', CONSTRAINT = 'event_immutable';
END $$;
CREATE TRIGGER event_immutable BEFORE UPDATE OF
    id, seq, source_id, ce_source, ce_id, type, "time", data_error, body_sha256, received_at, target_id,
    root_id, cause_event_id, cause_run_id, depth, chain ON triggers_event
  FOR EACH ROW EXECUTE FUNCTION triggers_refuse_event_change();
-- Retention and erasure may take the payload away, never change it.
CREATE TRIGGER event_payload_immutable BEFORE UPDATE OF data, body, headers ON triggers_event
  FOR EACH ROW WHEN (NEW.data IS NOT NULL OR NEW.body IS NOT NULL OR NEW.headers IS NOT NULL)
  EXECUTE FUNCTION triggers_refuse_event_change();
-- A subject may be a person: erasure puts a mark in its place, together with the loss of the payload.
CREATE TRIGGER event_subject_immutable BEFORE UPDATE OF subject ON triggers_event FOR EACH ROW
  WHEN (NEW.subject <> OLD.subject AND (NEW.subject NOT LIKE 'erased:%' OR NEW.payload_removed_at IS NULL))
  EXECUTE FUNCTION triggers_refuse_event_change();
-- What is gone does not come back.
CREATE TRIGGER event_removal_immutable BEFORE UPDATE OF payload_removed_at ON triggers_event FOR EACH ROW
  WHEN (OLD.payload_removed_at IS NOT NULL AND NEW.payload_removed_at IS NULL)
  EXECUTE FUNCTION triggers_refuse_event_change();
"""
DROP_IMMUTABLE = """
DROP TRIGGER event_removal_immutable ON triggers_event;
DROP TRIGGER event_subject_immutable ON triggers_event;
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

# Each event changes once, at dispatch, and its entry in the index of the undispatched dies with that: the dispatcher's
# every look would step over the dead ones.
CHURNED = "autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0"
# Written once, and taken by retention many at a time: frozen in small pieces, its space soon used again.
APPENDED = "autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_vacuum_scale_factor = 0.02"
# As small as what is going on just now, and rewritten by every event of it: counted in rows, not in shares of the table.
SMALL = "autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500"
# The same, and no index hangs on what changes: with free space in its page a row is rewritten in place.
IN_PLACE = f"fillfactor = 70, {SMALL}"
STORAGE = {
    "triggers_event": CHURNED,
    "triggers_decision": APPENDED,
    "triggers_window": SMALL,
    "triggers_schedule": SMALL,
    "triggers_rateuse": IN_PLACE,
}


def names_in(settings: str) -> str:
    return ", ".join(setting.split(" = ")[0] for setting in settings.split(", "))


def create_builtin_sources(apps, schema_editor):  # type: ignore[no-untyped-def]
    source = apps.get_model("triggers", "Source")
    for slug in ("schedule", "run", "wakeup", "manual", "cli"):
        source.objects.get_or_create(slug=slug, defaults={"id": uuid.uuid4(), "kind": slug})


class Migration(migrations.Migration):
    dependencies = [("triggers", "0001_initial"), ("django_celery_beat", "0019_alter_periodictasks_options")]

    operations = [
        migrations.RunSQL(IMMUTABLE, DROP_IMMUTABLE),
        migrations.RunSQL(STALE, DROP_STALE),
        migrations.RunPython(create_builtin_sources, migrations.RunPython.noop),
        *[
            migrations.RunSQL(
                f"ALTER TABLE {table} SET ({settings})", f"ALTER TABLE {table} RESET ({names_in(settings)})"
            )
            for table, settings in STORAGE.items()
        ],
    ]
