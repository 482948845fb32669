"""Search of events by fields of their data. The index is entered at dispatch, like that by type: accepting an event stays cheap.

Data above 16,384 stored bytes is left out, without being read, so that no payload makes its dispatch slow. Entries are first
appended to a list, which autovacuum moves into the index.
"""

from django.db import migrations, models

SEARCHABLE = """
CREATE FUNCTION triggers_searchable(data jsonb) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
  RETURN CASE WHEN pg_catalog.pg_column_size(data) <= 16384 THEN data END;
END $$;
CREATE INDEX event_by_field ON triggers_event USING gin (triggers_searchable(data) jsonb_path_ops)
  WITH (fastupdate = on, gin_pending_list_limit = 4096)
  WHERE dispatched_at IS NOT NULL;
"""
DROP_SEARCHABLE = """
DROP INDEX event_by_field;
DROP FUNCTION triggers_searchable(jsonb);
"""


class Migration(migrations.Migration):
    dependencies = [("triggers", "0006_subscriptions")]

    operations = [
        migrations.RunSQL(SEARCHABLE, DROP_SEARCHABLE),
        migrations.AddIndex(
            model_name="event",
            index=models.Index(
                condition=models.Q(("dispatched_at__isnull", False)), fields=["type", "id"], name="event_by_type"
            ),
        ),
        migrations.AddIndex(
            model_name="event",
            index=models.Index(
                condition=models.Q(("dispatched_at__isnull", False)), fields=["source", "id"], name="event_by_source"
            ),
        ),
    ]
