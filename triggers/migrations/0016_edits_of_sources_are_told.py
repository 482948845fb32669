"""A sources process that owns nothing hears of a source that is new, enabled or edited."""

from django.db import migrations

NOTIFY = """
CREATE FUNCTION triggers_sources_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_notify('wakeful_sources', '');
  RETURN NULL;
END $$;
CREATE TRIGGER triggers_sources_changed AFTER INSERT OR UPDATE OF slug, kind, settings, enabled OR DELETE ON triggers_source
FOR EACH STATEMENT EXECUTE FUNCTION triggers_sources_changed();
"""
SILENCE = """
DROP TRIGGER triggers_sources_changed ON triggers_source;
DROP FUNCTION triggers_sources_changed();
"""


class Migration(migrations.Migration):
    dependencies = [("triggers", "0015_help_texts")]

    operations = [migrations.RunSQL(NOTIFY, SILENCE)]
