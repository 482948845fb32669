"""The primary as it was last seen, and functions that say which one this is."""

from django.db import migrations, models
from django.db.models.functions import Now

# A role may be refused these functions, and some servers have none of them: then the answer is empty, and never an error,
# because the fence of every run asks.
TIMELINE = """
CREATE FUNCTION runs_timeline() RETURNS text LANGUAGE plpgsql AS $$
BEGIN
  RETURN left(pg_walfile_name(pg_current_wal_lsn()), 8);
EXCEPTION WHEN OTHERS THEN
  RETURN '';
END $$;

CREATE FUNCTION runs_primary_identity() RETURNS text LANGUAGE plpgsql AS $$
DECLARE
  timeline text := runs_timeline();
BEGIN
  IF timeline = '' THEN
    RETURN '';
  END IF;
  RETURN (SELECT system_identifier FROM pg_control_system()) || '/' || timeline;
EXCEPTION WHEN OTHERS THEN
  RETURN timeline;
END $$;
"""
DROP_TIMELINE = """
DROP FUNCTION runs_primary_identity();
DROP FUNCTION runs_timeline();
"""


class Migration(migrations.Migration):
    dependencies = [("runs", "0009_claimable")]

    operations = [
        migrations.RunSQL(TIMELINE, DROP_TIMELINE),
        migrations.CreateModel(
            name="Primary",
            fields=[
                ("id", models.SmallIntegerField(default=1, editable=False, primary_key=True, serialize=False)),
                ("identity", models.TextField(help_text="system identifier and timeline")),
                ("previous", models.TextField(db_default="", help_text="identity of the one before")),
                ("noticed_at", models.DateTimeField(db_default=Now(), help_text="when its identity was first seen")),
                (
                    "known_until",
                    models.DateTimeField(
                        help_text="the newest renewal of a worker that it had then; later commits may be lost", null=True
                    ),
                ),
            ],
            options={"default_permissions": ()},
        ),
    ]
