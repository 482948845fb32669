"""Writers of events do not queue behind the deletion of a source that waits for one of them."""

from importlib import import_module

from django.db import migrations

FORMER = import_module("triggers.migrations.0006_light_writes_of_watched_tables").NO_EVENTS
# The function alone: its trigger is there.
FORMER = FORMER[: FORMER.index("CREATE TRIGGER")].replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION")
# Later sessions wait behind one that waits for a lock. NOWAIT does not wait, so the lock is asked for again and again.
REQUIRE_NO_EVENTS = """
CREATE OR REPLACE FUNCTION triggers_require_no_events() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  last_try timestamptz := clock_timestamp() + interval '2 s';
  is_locked boolean := false;
BEGIN
  WHILE NOT is_locked AND NOT EXISTS (SELECT FROM triggers_event WHERE source_id = OLD.id) LOOP
    BEGIN
      LOCK TABLE triggers_event IN SHARE MODE NOWAIT;
      is_locked := true;
    EXCEPTION WHEN lock_not_available THEN
      IF clock_timestamp() > last_try THEN
        RAISE lock_not_available USING
          MESSAGE = format('source %s is not deleted: transactions that write events have been open for 2 s', OLD.slug),
          HINT = 'One of them may have written its first event. Try again when they have ended.';
      END IF;
      PERFORM pg_sleep(0.02);
    END;
  END LOOP;
  IF EXISTS (SELECT FROM triggers_event WHERE source_id = OLD.id) THEN
    RAISE foreign_key_violation USING MESSAGE = format('source %s has events', OLD.slug);
  END IF;
  RETURN OLD;
END $$;
"""
# The foreign key, which the reverse of 0006 makes, needs the source of each event.
GIVE_SOURCES = """
INSERT INTO triggers_source (id, slug, kind, settings, enabled)
SELECT DISTINCT source_id, 'deleted-' || source_id, 'manual', '{}'::jsonb, false FROM triggers_event
WHERE NOT EXISTS (SELECT FROM triggers_source WHERE id = source_id);
"""


class Migration(migrations.Migration):
    dependencies = [("triggers", "0011_indexes_of_one_order")]

    operations = [migrations.RunSQL(REQUIRE_NO_EVENTS, FORMER + GIVE_SOURCES)]
