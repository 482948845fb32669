"""Writers of events meet at no row: an event has no foreign key to its source. The NOTIFY of a change is never lost. A row that
cannot be read as JSON is said."""

from importlib import import_module

import django.db.models.deletion
from django.db import migrations, models

# Instead of the foreign key, which locked the source's row at every commit. The lock waits for transactions that have written events:
# one of them may have written the first one of this source.
NO_EVENTS = """
CREATE FUNCTION triggers_require_no_events() RETURNS trigger LANGUAGE plpgsql SET lock_timeout = '2s' AS $$
BEGIN
  LOCK TABLE triggers_event IN SHARE MODE;
  IF EXISTS (SELECT FROM triggers_event WHERE source_id = OLD.id) THEN
    RAISE foreign_key_violation USING MESSAGE = format('source %s has events', OLD.slug);
  END IF;
  RETURN OLD;
END $$;
CREATE TRIGGER source_has_no_events BEFORE DELETE ON triggers_source
  FOR EACH ROW EXECUTE FUNCTION triggers_require_no_events();
"""
DROP_NO_EVENTS = """
DROP TRIGGER source_has_no_events ON triggers_source;
DROP FUNCTION triggers_require_no_events();
"""
# Changes of watched tables wake the dispatcher at their commit. A transaction that notifies takes a lock of the whole cluster until it
# is on disk, so that many of them commit one after the other. Therefore none notifies while the dispatcher has promised to look
# (`triggers.dispatch.promise`). Until a transaction that relies on the promise has ended, it holds a lock, so that the dispatcher,
# which withdraws its promise before it sleeps, knows that a commit is under way. The promise stands in a sequence, as milliseconds of
# the epoch: no transaction locks it, and a crash of the server resets it. PREPARE TRANSACTION refuses a transaction that has notified,
# and would keep the lock for longer than a session lasts; the dispatcher looks by itself soon.
NUDGE = """
CREATE UNLOGGED SEQUENCE triggers_looks_until;
DROP TRIGGER event_nudge ON triggers_event;
CREATE OR REPLACE FUNCTION triggers_nudge_at_commit() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
  IF current_setting('max_prepared_transactions') <> '0' AND right(current_query(), 1000) ~* 'prepare[[:space:]]+transaction' THEN
    RETURN NULL;
  END IF;
  IF NOT pg_try_advisory_xact_lock_shared(22444, 3) THEN  -- the dispatcher withdraws its promise at this moment
    PERFORM pg_notify('wakeful_dispatcher', '');
  ELSIF (SELECT last_value FROM triggers_looks_until) <= extract(epoch FROM clock_timestamp()) * 1000 THEN
    PERFORM pg_notify('wakeful_dispatcher', '');
  END IF;
  RETURN NULL;
END $$;
-- It runs with Wakeful's rights in the session of every user who may write to a watched table: temporary objects of theirs would come
-- first, unless `pg_temp` is named last.
DO $$ BEGIN
  EXECUTE format('ALTER FUNCTION triggers_nudge_at_commit() SET search_path = pg_catalog, %I, pg_temp', current_schema());
END $$;
CREATE CONSTRAINT TRIGGER event_nudge AFTER INSERT ON triggers_event DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
  WHEN (NEW.headers ? 'first-of-statement' AND NEW.dispatched_at IS NULL)
  EXECUTE FUNCTION triggers_nudge_at_commit();
DROP SEQUENCE triggers_nudged_at;
"""
FORMER_NUDGE = import_module("triggers.migrations.0002_rules").NUDGE
DROP_NUDGE = """
DROP TRIGGER event_nudge ON triggers_event;
DROP FUNCTION triggers_nudge_at_commit();
DROP SEQUENCE triggers_looks_until;
"""


class Migration(migrations.Migration):
    dependencies = [("triggers", "0005_source_gaps")]

    operations = [
        migrations.AlterField(
            model_name="event",
            name="source",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.PROTECT,
                to="triggers.source",
            ),
        ),
        migrations.RunSQL(NO_EVENTS, DROP_NO_EVENTS),
        migrations.RunSQL(NUDGE, DROP_NUDGE + FORMER_NUDGE),
    ]
