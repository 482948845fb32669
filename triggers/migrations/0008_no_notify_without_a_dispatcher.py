"""While no dispatcher listens, such as during an outage of Wakeful, commits of watched tables send no NOTIFY: those of many sessions
would go to disk one after the other."""

from importlib import import_module

from django.db import migrations

# Each dispatcher writes there, before it sleeps, until when it is surely heard of again, as milliseconds of the epoch. 1: no dispatcher
# has written there, such as one of an earlier version, or the server has crashed.
LISTENS_UNTIL = """
CREATE UNLOGGED SEQUENCE triggers_listens_until;
CREATE OR REPLACE FUNCTION triggers_nudge_at_commit() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
  now_ms bigint := extract(epoch FROM clock_timestamp()) * 1000;
BEGIN
  IF current_setting('max_prepared_transactions') <> '0' AND right(current_query(), 1000) ~* 'prepare[[:space:]]+transaction' THEN
    RETURN NULL;
  END IF;
  IF NOT pg_try_advisory_xact_lock_shared(22444, 3)  -- the dispatcher withdraws its promise at this moment
    OR (SELECT last_value FROM triggers_looks_until) <= now_ms
      AND (SELECT last_value = 1 OR last_value > now_ms FROM triggers_listens_until)
  THEN
    PERFORM pg_notify('wakeful_dispatcher', '');
  END IF;
  RETURN NULL;
END $$;
DO $$ BEGIN
  EXECUTE format('ALTER FUNCTION triggers_nudge_at_commit() SET search_path = pg_catalog, %I, pg_temp', current_schema());
END $$;
"""
FORMER = import_module("triggers.migrations.0006_light_writes_of_watched_tables").NUDGE
# The function alone: the sequences and the trigger of that migration are there.
FORMER_FUNCTION = FORMER[FORMER.index("CREATE OR REPLACE FUNCTION") : FORMER.index("CREATE CONSTRAINT TRIGGER")]


class Migration(migrations.Migration):
    dependencies = [("triggers", "0007_rows_that_are_no_json")]

    operations = [migrations.RunSQL(LISTENS_UNTIL, FORMER_FUNCTION + "DROP SEQUENCE triggers_listens_until")]
