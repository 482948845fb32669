"""Rules a constraint cannot say: events do not change, edits of the rules and of the rows of a schedule are noticed; functions that the
triggers of watched tables call; search; the built-in sources."""

import uuid

from django.db import migrations

IMMUTABLE = """
CREATE FUNCTION triggers_refuse_event_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'event % is immutable', OLD.id USING ERRCODE = 'check_violation', CONSTRAINT = 'event_immutable';
END $$;
CREATE TRIGGER event_immutable BEFORE UPDATE OF
    id, seq, source_id, ce_source, ce_id, type, "time", body_sha256, received_at, target_id,
    root_id, cause_event_id, cause_run_id, depth, chain, imported_at ON triggers_event
  FOR EACH ROW EXECUTE FUNCTION triggers_refuse_event_change();
-- A run may see untrusted data after it has written: then the events of its writes become tainted. The reverse is refused.
CREATE TRIGGER event_taint_immutable BEFORE UPDATE OF is_tainted ON triggers_event
  FOR EACH ROW WHEN (OLD.is_tainted AND NOT NEW.is_tainted) EXECUTE FUNCTION triggers_refuse_event_change();
-- The reason why a body was not JSON may go with the payload.
CREATE TRIGGER event_error_immutable BEFORE UPDATE OF data_error ON triggers_event FOR EACH ROW
  WHEN (NEW.data_error <> OLD.data_error AND (NEW.data_error <> '(erased)' OR NEW.payload_removed_at IS NULL))
  EXECUTE FUNCTION triggers_refuse_event_change();
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
DROP TRIGGER event_error_immutable ON triggers_event;
DROP TRIGGER event_taint_immutable ON triggers_event;
DROP TRIGGER event_immutable ON triggers_event;
DROP FUNCTION triggers_refuse_event_change();
"""

# `PeriodicTask.save()` has side effects and `.update()` sends no signal; only the tables see every edit. Each one marks the
# schedule stale and keeps what had held until then (triggers.models.Revision).
STALE = """
CREATE FUNCTION triggers_state(
  task django_celery_beat_periodictask, crontab django_celery_beat_crontabschedule,
  "interval" django_celery_beat_intervalschedule, clocked django_celery_beat_clockedschedule,
  solar django_celery_beat_solarschedule, schedule triggers_schedule
) RETURNS jsonb LANGUAGE sql STABLE AS $$
  SELECT jsonb_strip_nulls(jsonb_build_object(
    'name', task.name, 'enabled', task.enabled, 'one_off', task.one_off, 'start', task.start_time, 'end', task.expires,
    'crontab', CASE WHEN crontab.id IS NOT NULL THEN jsonb_build_object(
      'minute', crontab.minute, 'hour', crontab.hour, 'day_of_month', crontab.day_of_month,
      'month', crontab.month_of_year, 'day_of_week', crontab.day_of_week, 'zone', crontab.timezone) END,
    'interval', CASE WHEN "interval".id IS NOT NULL THEN jsonb_build_object('every', "interval".every, 'period', "interval".period) END,
    'clocked', clocked.clocked_time,
    'solar', CASE WHEN solar.id IS NOT NULL THEN jsonb_build_object(
      'event', solar.event, 'latitude', solar.latitude, 'longitude', solar.longitude) END,
    'anchor', schedule.anchor_at, 'spec', schedule.spec,
    'catch_up', schedule.catch_up, 'catch_up_max', schedule.catch_up_max,
    'catch_up_window', extract(epoch FROM schedule.catch_up_window)::float8,
    'jitter', extract(epoch FROM schedule.jitter)::float8, 'spread', extract(epoch FROM schedule.spread)::float8,
    'active_hours', schedule.active_hours, 'active_zone', schedule.active_zone, 'max_fires', schedule.max_fires,
    'exclude', (SELECT jsonb_object_agg(calendar.slug, calendar.days)
      FROM triggers_schedule_exclude link JOIN triggers_exclusioncalendar calendar ON calendar.id = link.exclusioncalendar_id
      WHERE link.schedule_id = schedule.id)))
$$;

-- What is still being made has no past.
CREATE FUNCTION triggers_is_new(schedule triggers_schedule) RETURNS boolean LANGUAGE sql STABLE AS $$
  SELECT schedule.accounted_until IS NULL AND schedule.created_at > clock_timestamp() - interval '5 s'
$$;

CREATE FUNCTION triggers_editor() RETURNS text LANGUAGE sql STABLE AS $$
  SELECT current_user || coalesce(' by ' || nullif(current_setting('application_name'), ''), '')
$$;

CREATE FUNCTION triggers_task_edited() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  edit timestamptz;
BEGIN
  -- Whoever edits the same schedule is waited for first: what holds until when is told in the order of the edits.
  PERFORM FROM triggers_schedule WHERE task_id = NEW.id FOR NO KEY UPDATE;
  edit := clock_timestamp();
  IF TG_OP = 'UPDATE' THEN
    INSERT INTO triggers_revision (schedule_id, until, by, state)
    SELECT schedule.id, edit, triggers_editor(), triggers_state(OLD, crontab, "interval", clocked, solar, schedule)
    FROM triggers_schedule schedule
    LEFT JOIN django_celery_beat_crontabschedule crontab ON crontab.id = OLD.crontab_id
    LEFT JOIN django_celery_beat_intervalschedule "interval" ON "interval".id = OLD.interval_id
    LEFT JOIN django_celery_beat_clockedschedule clocked ON clocked.id = OLD.clocked_id
    LEFT JOIN django_celery_beat_solarschedule solar ON solar.id = OLD.solar_id
    WHERE schedule.task_id = NEW.id AND NOT triggers_is_new(schedule);
    -- Its events are found by the names it had; when it fires does not depend on them.
    IF NOT {EDITED} THEN
      RETURN NULL;
    END IF;
  END IF;
  INSERT INTO triggers_schedule (task_id, stale, edited_at, created_at, paused_at)
    VALUES (NEW.id, true, edit, edit, CASE WHEN NOT NEW.enabled THEN edit END)
    ON CONFLICT (task_id) DO UPDATE SET
      stale = true,
      edited_at = excluded.edited_at,
      paused_at = CASE WHEN NOT NEW.enabled THEN coalesce(triggers_schedule.paused_at, edit) END,
      paused_by = CASE WHEN NOT NEW.enabled THEN triggers_schedule.paused_by ELSE '' END,
      paused_note = CASE WHEN NOT NEW.enabled THEN triggers_schedule.paused_note ELSE '' END;
  PERFORM pg_notify('wakeful_beat', '');
  RETURN NULL;
END $$;
CREATE TRIGGER schedule_made AFTER INSERT ON django_celery_beat_periodictask
  FOR EACH ROW EXECUTE FUNCTION triggers_task_edited();
-- `save()` writes every column: what did not change is no edit.
CREATE TRIGGER schedule_stale AFTER UPDATE ON django_celery_beat_periodictask
  FOR EACH ROW WHEN (OLD.name <> NEW.name OR {EDITED})
  EXECUTE FUNCTION triggers_task_edited();

{RULES}
-- The columns of the schedule itself that decide when it fires.
CREATE FUNCTION triggers_schedule_edited() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  NEW.stale := true;
  NEW.edited_at := clock_timestamp();
  IF NOT triggers_is_new(OLD) THEN
    INSERT INTO triggers_revision (schedule_id, until, by, state)
    SELECT OLD.id, NEW.edited_at, triggers_editor(), triggers_state(periodic, crontab, "interval", clocked, solar, OLD)
    FROM django_celery_beat_periodictask periodic
    LEFT JOIN django_celery_beat_crontabschedule crontab ON crontab.id = periodic.crontab_id
    LEFT JOIN django_celery_beat_intervalschedule "interval" ON "interval".id = periodic.interval_id
    LEFT JOIN django_celery_beat_clockedschedule clocked ON clocked.id = periodic.clocked_id
    LEFT JOIN django_celery_beat_solarschedule solar ON solar.id = periodic.solar_id
    WHERE periodic.id = OLD.task_id;
  END IF;
  PERFORM pg_notify('wakeful_beat', '');
  RETURN NEW;
END $$;
CREATE TRIGGER schedule_stale BEFORE UPDATE ON triggers_schedule FOR EACH ROW WHEN (
    (OLD.jitter, OLD.spread, OLD.active_hours, OLD.active_zone, OLD.max_fires,
     OLD.catch_up, OLD.catch_up_max, OLD.catch_up_window)
    IS DISTINCT FROM
    (NEW.jitter, NEW.spread, NEW.active_hours, NEW.active_zone, NEW.max_fires,
     NEW.catch_up, NEW.catch_up_max, NEW.catch_up_window))
  EXECUTE FUNCTION triggers_schedule_edited();

-- Which days it leaves out: a calendar given to it, taken from it, or edited. `days` is what the calendar said before.
CREATE FUNCTION triggers_exclusion_edited(this bigint, slug text, days text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  edit timestamptz;
BEGIN
  PERFORM FROM triggers_schedule WHERE id = this FOR NO KEY UPDATE;
  edit := clock_timestamp();
  INSERT INTO triggers_revision (schedule_id, until, by, state)
  SELECT schedule.id, edit, triggers_editor(), jsonb_set(
    triggers_state(periodic, crontab, "interval", clocked, solar, schedule) || '{"exclude": {}}'::jsonb,
    '{exclude}',
    coalesce((SELECT jsonb_object_agg(calendar.slug, calendar.days)
      FROM triggers_schedule_exclude link JOIN triggers_exclusioncalendar calendar ON calendar.id = link.exclusioncalendar_id
      WHERE link.schedule_id = this AND calendar.slug <> triggers_exclusion_edited.slug), '{}')
    || CASE WHEN days IS NULL THEN '{}' ELSE jsonb_build_object(triggers_exclusion_edited.slug, days) END)
  FROM triggers_schedule schedule
  JOIN django_celery_beat_periodictask periodic ON periodic.id = schedule.task_id
  LEFT JOIN django_celery_beat_crontabschedule crontab ON crontab.id = periodic.crontab_id
  LEFT JOIN django_celery_beat_intervalschedule "interval" ON "interval".id = periodic.interval_id
  LEFT JOIN django_celery_beat_clockedschedule clocked ON clocked.id = periodic.clocked_id
  LEFT JOIN django_celery_beat_solarschedule solar ON solar.id = periodic.solar_id
  WHERE schedule.id = this AND NOT triggers_is_new(schedule);
  UPDATE triggers_schedule SET stale = true, edited_at = edit WHERE id = this;
  PERFORM pg_notify('wakeful_beat', '');
END $$;
CREATE FUNCTION triggers_exclusion_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    PERFORM triggers_exclusion_edited(NEW.schedule_id, calendar.slug, NULL)
    FROM triggers_exclusioncalendar calendar WHERE calendar.id = NEW.exclusioncalendar_id;
  ELSE
    PERFORM triggers_exclusion_edited(OLD.schedule_id, calendar.slug, calendar.days)
    FROM triggers_exclusioncalendar calendar WHERE calendar.id = OLD.exclusioncalendar_id;
  END IF;
  RETURN NULL;
END $$;
CREATE TRIGGER schedule_stale AFTER INSERT OR DELETE ON triggers_schedule_exclude
  FOR EACH ROW EXECUTE FUNCTION triggers_exclusion_changed();
CREATE FUNCTION triggers_calendar_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM triggers_exclusion_edited(link.schedule_id, OLD.slug, OLD.days)
  FROM triggers_schedule_exclude link WHERE link.exclusioncalendar_id = OLD.id ORDER BY link.schedule_id;
  RETURN OLD;
END $$;
CREATE TRIGGER schedule_stale AFTER UPDATE OF days ON triggers_exclusioncalendar
  FOR EACH ROW WHEN (OLD.days IS DISTINCT FROM NEW.days) EXECUTE FUNCTION triggers_calendar_changed();
-- SQL may delete it before the rows that name it: afterwards nobody could tell its days.
CREATE TRIGGER schedule_stale_then BEFORE DELETE ON triggers_exclusioncalendar
  FOR EACH ROW EXECUTE FUNCTION triggers_calendar_changed();
"""
# An installation of django-celery-beat: what its own scheduler has fired is not owed.
TAKE_OVER = """
INSERT INTO triggers_schedule (task_id, stale, accounted_until)
  SELECT id, true, last_run_at FROM django_celery_beat_periodictask ON CONFLICT DO NOTHING
"""
# An edited row of rules reaches every schedule that shares it.
RULE = """
CREATE FUNCTION triggers_{table}_edited() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  edit timestamptz;
BEGIN
  -- Locked before the edit has its time: no tick by the old rule comes after that. In one order: no two editors wait for
  -- each other.
  PERFORM FROM triggers_schedule schedule JOIN django_celery_beat_periodictask periodic ON periodic.id = schedule.task_id
  WHERE periodic.{table}_id = NEW.id ORDER BY schedule.id FOR NO KEY UPDATE OF schedule;
  edit := clock_timestamp();
  INSERT INTO triggers_revision (schedule_id, until, by, state)
  SELECT schedule.id, edit, triggers_editor(), triggers_state(periodic, {crontab}, {interval}, {clocked}, {solar}, schedule)
  FROM django_celery_beat_periodictask periodic JOIN triggers_schedule schedule ON schedule.task_id = periodic.id
  WHERE periodic.{table}_id = NEW.id AND NOT triggers_is_new(schedule);
  UPDATE triggers_schedule schedule SET stale = true, edited_at = edit FROM django_celery_beat_periodictask periodic
  WHERE schedule.task_id = periodic.id AND periodic.{table}_id = NEW.id;
  PERFORM pg_notify('wakeful_beat', '');
  RETURN NULL;
END $$;
CREATE TRIGGER schedule_stale AFTER UPDATE ON django_celery_beat_{table}schedule
  FOR EACH ROW WHEN (OLD.* IS DISTINCT FROM NEW.*) EXECUTE FUNCTION triggers_{table}_edited();
"""
KINDS = ("crontab", "interval", "clocked", "solar")


def edits_of(kind: str) -> str:
    return RULE.format(table=kind, **{one: "OLD" if one == kind else "NULL" for one in KINDS})


DECISIVE = ("enabled", *(f"{kind}_id" for kind in KINDS), "start_time", "expires", "one_off")
EDITED = "({}) IS DISTINCT FROM ({})".format(
    *(", ".join(f"{row}.{name}" for name in DECISIVE) for row in ("OLD", "NEW"))
)
STALE = STALE.replace("{RULES}", "".join(edits_of(kind) for kind in KINDS)).replace("{EDITED}", f"({EDITED})")
DROP_STALE = """
DROP TRIGGER schedule_stale_then ON triggers_exclusioncalendar;
DROP TRIGGER schedule_stale ON triggers_exclusioncalendar;
DROP TRIGGER schedule_stale ON triggers_schedule_exclude;
DROP TRIGGER schedule_stale ON triggers_schedule;
DROP TRIGGER schedule_made ON django_celery_beat_periodictask;
DROP TRIGGER schedule_stale ON django_celery_beat_periodictask;
DROP TRIGGER schedule_stale ON django_celery_beat_crontabschedule;
DROP TRIGGER schedule_stale ON django_celery_beat_intervalschedule;
DROP TRIGGER schedule_stale ON django_celery_beat_clockedschedule;
DROP TRIGGER schedule_stale ON django_celery_beat_solarschedule;
DROP FUNCTION triggers_calendar_changed();
DROP FUNCTION triggers_exclusion_changed();
DROP FUNCTION triggers_exclusion_edited(bigint, text, text);
DROP FUNCTION triggers_schedule_edited();
DROP FUNCTION triggers_task_edited();
DROP FUNCTION triggers_crontab_edited();
DROP FUNCTION triggers_interval_edited();
DROP FUNCTION triggers_clocked_edited();
DROP FUNCTION triggers_solar_edited();
DROP FUNCTION triggers_editor();
DROP FUNCTION triggers_is_new(triggers_schedule);
DROP FUNCTION triggers_state(
  django_celery_beat_periodictask, django_celery_beat_crontabschedule, django_celery_beat_intervalschedule,
  django_celery_beat_clockedschedule, django_celery_beat_solarschedule, triggers_schedule);
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
# One row each, rewritten again and again: half of every page is left free for that.
ONE_ROW = "fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200"
# Each row changes a few times, and then never again.
ENDED = "autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000"
STORAGE = {
    "triggers_event": CHURNED,
    "triggers_decision": APPENDED,
    "triggers_window": SMALL,
    "triggers_schedule": SMALL,
    "triggers_rateuse": IN_PLACE,
    "triggers_switchtimer": IN_PLACE,
    "triggers_gate": ONE_ROW,
    "triggers_subscription": ONE_ROW,
    "triggers_eventdelivery": ENDED,
    "triggers_skip": APPENDED,
    "triggers_revision": APPENDED,
}

# Deferred: the one row is locked at the commit only, so no transaction that edits a trigger waits for another one's end.
# What is no part of a rule is named, so that a column added later counts. ALWAYS: replication and restores count as well.
VERSION = """
CREATE TABLE triggers_rulesversion (
  is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
  version bigint NOT NULL DEFAULT 0,
  changed_by xid8
);
INSERT INTO triggers_rulesversion DEFAULT VALUES;

CREATE FUNCTION triggers_rules_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO triggers_rulesversion (version, changed_by) VALUES (1, pg_current_xact_id())
  ON CONFLICT (is_only) DO UPDATE SET version = triggers_rulesversion.version + 1, changed_by = excluded.changed_by
  WHERE triggers_rulesversion.changed_by IS DISTINCT FROM excluded.changed_by;
  RETURN NULL;
END $$;
"""
DROP_VERSION = """
DROP FUNCTION triggers_rules_changed();
DROP TABLE triggers_rulesversion;
"""
# Also of what decides which events leave, and of what the dispatcher watches for.
NOTICED = """
CREATE CONSTRAINT TRIGGER rules_made AFTER INSERT OR DELETE ON {table}
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION triggers_rules_changed();
CREATE CONSTRAINT TRIGGER rules_edited AFTER UPDATE ON {table}
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN ({old} IS DISTINCT FROM {new})
  EXECUTE FUNCTION triggers_rules_changed();
CREATE TRIGGER rules_emptied AFTER TRUNCATE ON {table}
  FOR EACH STATEMENT EXECUTE FUNCTION triggers_rules_changed();
ALTER TABLE {table} ENABLE ALWAYS TRIGGER rules_made;
ALTER TABLE {table} ENABLE ALWAYS TRIGGER rules_edited;
ALTER TABLE {table} ENABLE ALWAYS TRIGGER rules_emptied;
"""
UNNOTICED = """
DROP TRIGGER rules_made ON {table};
DROP TRIGGER rules_edited ON {table};
DROP TRIGGER rules_emptied ON {table};
"""
RULES = {
    "triggers_trigger": "to_jsonb({row}) - '{{failures_in_a_row,declared,overrides,created_at}}'::text[]",
    "triggers_subscription": "to_jsonb({row}) - '{{address,ciphertext,disabled_reason,failing_since,error,created_at}}'::text[]",
    "triggers_source": "({row}.slug, {row}.kind, {row}.settings, {row}.enabled)",
}


def noticed(table: str) -> str:
    return NOTICED.format(table=table, **{row.lower(): RULES[table].format(row=row) for row in ("OLD", "NEW")})


# Search of events by fields of their data. The index is entered at dispatch, like that by type: accepting an event stays cheap.
# Data above 16,384 stored bytes is left out, without being read, so that no payload makes its dispatch slow. Entries are first
# appended to a list; the dispatcher moves it into the index when it is full, which takes about 30 ms for 256 kB, and 250 ms for the
# default of 4 MB.
SEARCHABLE = """
CREATE FUNCTION triggers_searchable(data jsonb) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
  RETURN CASE WHEN pg_catalog.pg_column_size(data) <= 16384 THEN data END;
END $$;
CREATE INDEX event_by_field ON triggers_event USING gin (triggers_searchable(data) jsonb_path_ops)
  WITH (fastupdate = on, gin_pending_list_limit = 256)
  WHERE dispatched_at IS NOT NULL;
"""
DROP_SEARCHABLE = """
DROP INDEX event_by_field;
DROP FUNCTION triggers_searchable(jsonb);
"""
# Such as those of triggers.accept: the first six bytes are the time.
UUID7 = """
CREATE FUNCTION triggers_uuid7() RETURNS uuid LANGUAGE sql VOLATILE AS $$
  SELECT encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
    PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3) FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid
$$
"""
# The session of a run has its name ("wakeful:<run>:<epoch>", see runs.claim), in all threads of its body.
# Every session may choose its name: that it is a run's counts for sessions of Wakeful's own user, the owner of the calling function.
CAUSE = """
CREATE FUNCTION triggers_cause_of_change(
  OUT cause_root_id uuid, OUT cause_event_id uuid, OUT cause_run_id uuid, OUT cause_depth smallint, OUT cause_chain text[],
  OUT cause_is_tainted boolean
) LANGUAGE plpgsql STABLE AS $$
BEGIN
  IF current_setting('application_name') ~ '^wakeful:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}:' AND session_user = current_user THEN
    SELECT root_id, event_ids[cardinality(event_ids)], id, depth + 1, chain || coalesce(nullif(trigger, ''), agent), is_tainted
    INTO cause_root_id, cause_event_id, cause_run_id, cause_depth, cause_chain, cause_is_tainted
    FROM runs_run WHERE id = split_part(current_setting('application_name'), ':', 2)::uuid;
  END IF;
END $$
"""
# Python and CEL read JSON that is at most 100 levels deep, and numbers of a double. Short JSON has neither more.
READABLE = """
CREATE FUNCTION triggers_is_readable(value jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
  SELECT CASE WHEN length(value::text) < 190 THEN true WHEN value @? 'strict $.**{95}' THEN false
    ELSE length(value::text) < 309 OR NOT value @? 'strict $.** ? (@ > 1e308 || @ < -1e308)' END
$$
"""
# A row with values that jsonb refuses, or readers of JSON: characters that it cannot have are U+FFFD, a value with numbers or levels
# beyond those is its text, and one of more than `most` bytes a text that is too large for an event. chr(92) is a backslash, whatever
# the session says of those in literals.
ROW = """
CREATE FUNCTION triggers_row_as_json(wakeful_row record, most int) RETURNS jsonb LANGUAGE plpgsql STABLE AS $$
DECLARE
  slash text := chr(92);
  escape text := chr(92) || chr(92) || 'u';  -- of a regular expression
  said text;
  found jsonb;
  one jsonb;
  name text;
  value json;
BEGIN
  BEGIN
    found := pg_catalog.to_jsonb(wakeful_row);
    IF triggers_is_readable(found) THEN
      RETURN found;
    END IF;
  EXCEPTION WHEN OTHERS THEN
    NULL;
  END;
  said := pg_catalog.row_to_json(wakeful_row);
  IF strpos(said, slash || 'u') > 0 THEN
    said := replace(said, slash || slash, slash || 'u005c');
    said := regexp_replace(said, escape || '0000', chr(65533), 'g');
    said := regexp_replace(said, escape || '[dD][89abAB]..(?!' || escape || '[dD][c-fC-F])', chr(65533), 'g');
    said := regexp_replace(said, '(?<!' || escape || '[dD][89abAB]..)' || escape || '[dD][c-fC-F]..', chr(65533), 'g');
  END IF;
  found := '{}';
  FOR name, value IN SELECT * FROM json_each(said::json) LOOP
    IF octet_length(value::text) > most THEN
      one := pg_catalog.to_jsonb(repeat(md5(value::text), most / 32 + 1));
    ELSE
      BEGIN
        one := value::jsonb;
        IF NOT triggers_is_readable(one) THEN
          one := pg_catalog.to_jsonb(value::text);
        END IF;
      EXCEPTION WHEN OTHERS THEN
        one := pg_catalog.to_jsonb(value::text);
      END;
    END IF;
    found := found || pg_catalog.jsonb_build_object(name, one);
  END LOOP;
  RETURN found;
EXCEPTION WHEN OTHERS THEN  -- such as a cast to json of the table's own that fails: the write goes on
  RETURN NULL;
END $$
"""
# Changes of watched tables wake the dispatcher at their commit. A transaction that notifies takes a lock of the whole cluster until
# it is on disk, so that many of them commit one after the other. Therefore the last moment before the commit decides: if another one
# has notified less than 15 ms ago, the dispatcher still looks (`triggers.dispatch.loop.KEEP_LOOKING`). The time of the last one
# stands in a sequence, which no transaction locks. PREPARE TRANSACTION refuses a transaction that has notified; the dispatcher looks
# by itself soon.
NUDGE = """
CREATE UNLOGGED SEQUENCE triggers_nudged_at;
CREATE FUNCTION triggers_nudge_at_commit() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
  now_ms bigint := extract(epoch FROM clock_timestamp()) * 1000;
BEGIN
  IF now_ms - (SELECT last_value FROM triggers_nudged_at) NOT BETWEEN 0 AND 14
    AND (current_setting('max_prepared_transactions') = '0' OR right(current_query(), 1000) !~* 'prepare[[:space:]]+transaction')
  THEN
    PERFORM setval('triggers_nudged_at', now_ms), pg_notify('wakeful_dispatcher', '');
  END IF;
  RETURN NULL;
END $$;
-- It runs with Wakeful's rights in the session of every user who may write to a watched table: temporary objects of theirs would come
-- first, unless `pg_temp` is named last.
DO $$ BEGIN
  EXECUTE format('ALTER FUNCTION triggers_nudge_at_commit() SET search_path = pg_catalog, %I, pg_temp', current_schema());
END $$;
REVOKE ALL ON FUNCTION triggers_nudge_at_commit() FROM PUBLIC;
CREATE CONSTRAINT TRIGGER event_nudge AFTER INSERT ON triggers_event DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
  WHEN (NEW.headers @> '{"first-of-statement": true}' AND NEW.dispatched_at IS NULL)
  EXECUTE FUNCTION triggers_nudge_at_commit();
"""
DROP_NUDGE = """
DROP TRIGGER event_nudge ON triggers_event;
DROP FUNCTION triggers_nudge_at_commit();
DROP SEQUENCE triggers_nudged_at;
"""


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
        migrations.RunSQL(VERSION, DROP_VERSION),
        *[migrations.RunSQL(noticed(table), UNNOTICED.format(table=table)) for table in RULES],
        migrations.RunSQL(SEARCHABLE, DROP_SEARCHABLE),
        migrations.RunSQL(UUID7, "DROP FUNCTION triggers_uuid7()"),
        migrations.RunSQL(CAUSE, "DROP FUNCTION triggers_cause_of_change()"),
        migrations.RunSQL(READABLE, "DROP FUNCTION triggers_is_readable(jsonb)"),
        migrations.RunSQL(ROW, "DROP FUNCTION triggers_row_as_json(record, int)"),
        migrations.RunSQL(NUDGE, DROP_NUDGE),
        migrations.RunPython(create_builtin_sources, migrations.RunPython.noop),
        *[
            migrations.RunSQL(
                f"ALTER TABLE {table} SET ({settings})", f"ALTER TABLE {table} RESET ({names_in(settings)})"
            )
            for table, settings in STORAGE.items()
        ],
        # Last: a table is not altered in the transaction that has written to it.
        migrations.RunSQL(TAKE_OVER, migrations.RunSQL.noop),
    ]
