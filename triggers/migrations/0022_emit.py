"""`wakeful_emit` records an event in the transaction of its caller: in SQL, or by `triggers.emit`. The caller needs the right to execute it,
and no right to a table of Wakeful's."""

from django.db import migrations

# The NOTIFY is that of watched tables: at the commit, and only if no dispatcher looks anyway. An event that the body of a run emits has
# that run as its cause. The dispatcher reads an event whole, hence the limit of 16 MiB.
EMIT = """
CREATE FUNCTION wakeful_emit(type text, data jsonb DEFAULT NULL, subject text DEFAULT '', id text DEFAULT NULL)
RETURNS uuid LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE
  made uuid := triggers_uuid7();
  plain text := lower(btrim(wakeful_emit.type));
  fault text;
  found uuid;
BEGIN
  fault := CASE
    WHEN coalesce(plain, '') = '' THEN 'the type is empty; use a name such as invoice.paid'
    WHEN plain LIKE 'wakeful.%' OR plain IN ('run.signal', 'run.wakeup', 'schedule.fired', 'manual.fired')
      THEN format('the type %s is reserved for events that Wakeful records itself; use another type', wakeful_emit.type)
    WHEN length(wakeful_emit.type) > 255 OR octet_length(wakeful_emit.type) > 2600
      THEN format('the type has %s characters; use at most 255', length(wakeful_emit.type))
    WHEN length(subject) > 1024 OR octet_length(subject) > 2600
      THEN format('the subject has %s characters; use at most 1,024', length(subject))
    WHEN length(wakeful_emit.id) NOT BETWEEN 1 AND 255
      THEN format('the id has %s characters; use 1 to 255, or NULL for a new one', length(wakeful_emit.id))
    WHEN pg_column_size(data) > 16777216
      THEN format('the data has %s bytes; use at most 16,777,216, and a reference to what is larger', pg_column_size(data))
    WHEN NOT triggers_is_readable(data) THEN 'the data has more than 90 levels, or a number beyond 1e308'
  END;
  IF fault IS NOT NULL THEN
    RAISE invalid_parameter_value USING MESSAGE = 'wakeful_emit: ' || fault;
  END IF;
  INSERT INTO triggers_event AS event (id, source_id, ce_source, ce_id, type, subject, data, data_error, headers, body_sha256,
    root_id, cause_event_id, cause_run_id, depth, chain, is_tainted)
  SELECT made, source.id, 'emit', coalesce(wakeful_emit.id, made::text), wakeful_emit.type, coalesce(wakeful_emit.subject, ''),
    wakeful_emit.data, '', '{"first-of-statement": "true"}', '', coalesce(cause_root_id, made), cause_event_id, cause_run_id,
    coalesce(cause_depth, 0), coalesce(cause_chain, '{}'), coalesce(cause_is_tainted, false)
  FROM triggers_source source LEFT JOIN triggers_cause_of_change() ON true WHERE source.slug = 'emit'
  ON CONFLICT ON CONSTRAINT event_once DO NOTHING
  RETURNING event.id INTO found;
  IF found IS NULL THEN
    SELECT event.id INTO found FROM triggers_event event JOIN triggers_source source ON source.id = event.source_id
    WHERE source.slug = 'emit' AND event.ce_source = 'emit' AND event.ce_id = wakeful_emit.id;
    IF found IS NULL THEN
      RAISE object_not_in_prerequisite_state USING MESSAGE = 'wakeful_emit: the source "emit" is missing; the command migrate of Wakeful adds it';
    END IF;
    INSERT INTO triggers_redelivery AS redelivery (event_id, body_sha256, differs, count)
    SELECT event.id, '', false, 1 FROM triggers_event event WHERE event.id = found
    ON CONFLICT (event_id, body_sha256) DO UPDATE SET count = redelivery.count + 1, last_at = now();
  END IF;
  RETURN found;
END $$;
-- It runs with Wakeful's rights in sessions of other roles: temporary objects of theirs would come first, unless `pg_temp` is last.
DO $$ BEGIN
  EXECUTE format('ALTER FUNCTION wakeful_emit(text, jsonb, text, text) SET search_path = pg_catalog, %I, pg_temp', current_schema());
END $$;
REVOKE ALL ON FUNCTION wakeful_emit(text, jsonb, text, text) FROM PUBLIC;
"""


def add_source(apps, schema_editor):
    apps.get_model("triggers", "Source").objects.get_or_create(slug="emit", defaults={"kind": "emit"})


class Migration(migrations.Migration):
    dependencies = [("triggers", "0021_reverse_drops_captures")]

    operations = [
        migrations.RunSQL(EMIT, "DROP FUNCTION wakeful_emit(text, jsonb, text, text)"),
        migrations.RunPython(add_source, migrations.RunPython.noop),
    ]
