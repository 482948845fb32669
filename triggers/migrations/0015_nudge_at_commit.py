"""Changes of watched tables wake the dispatcher at their commit.

A transaction that notifies takes a lock of the whole cluster until it is on disk, so that many of them commit one after the other.
Therefore the last moment before the commit decides: if another one has notified less than 15 ms ago, the dispatcher still looks
(`triggers.dispatch.loop.KEEP_LOOKING`). The time of the last one stands in a sequence, which no transaction locks."""

from django.db import migrations, models

NUDGE = """
CREATE UNLOGGED SEQUENCE triggers_nudged_at;
CREATE FUNCTION triggers_nudge_at_commit() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
  SET search_path FROM CURRENT AS $$
DECLARE
  now_ms bigint := extract(epoch FROM clock_timestamp()) * 1000;
BEGIN
  IF now_ms - (SELECT last_value FROM triggers_nudged_at) NOT BETWEEN 0 AND 14 THEN
    PERFORM setval('triggers_nudged_at', now_ms), pg_notify('wakeful_dispatcher', '');
  END IF;
  RETURN NULL;
END $$;
REVOKE ALL ON FUNCTION triggers_nudge_at_commit() FROM PUBLIC;
CREATE CONSTRAINT TRIGGER event_nudge AFTER INSERT ON triggers_event DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
  WHEN (NEW.headers @> '{"first-of-statement": true}' AND NEW.dispatched_at IS NULL)
  EXECUTE FUNCTION triggers_nudge_at_commit();
"""
DROP = """
DROP TRIGGER event_nudge ON triggers_event;
DROP FUNCTION triggers_nudge_at_commit();
DROP SEQUENCE triggers_nudged_at;
"""


class Migration(migrations.Migration):
    dependencies = [("triggers", "0014_switches")]

    operations = [
        migrations.RunSQL(NUDGE, DROP),
        migrations.AlterField(
            model_name="watchedtable",
            name="relations",
            field=models.JSONField(
                default=dict,
                help_text="the tables that have them, itself and its partitions, and the names of their triggers",
            ),
        ),
        migrations.RunSQL("UPDATE triggers_watchedtable SET relations = '{}'", migrations.RunSQL.noop),
    ]
