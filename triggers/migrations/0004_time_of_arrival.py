"""An event arrives when its row is made; a switch that is disabled begins from zero."""

from django.db import migrations, models

# The dispatcher may not look before the source is enabled again.
SWITCH_OFF = """
CREATE FUNCTION triggers_switch_off() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  UPDATE triggers_switch SET is_on = false WHERE source_id = NEW.id;
  RETURN NULL;
END $$;
CREATE TRIGGER source_switch_off AFTER UPDATE OF enabled ON triggers_source
  FOR EACH ROW WHEN (OLD.enabled AND NOT NEW.enabled) EXECUTE FUNCTION triggers_switch_off();
"""
DROP_SWITCH_OFF = """
DROP TRIGGER source_switch_off ON triggers_source;
DROP FUNCTION triggers_switch_off();
"""


class Migration(migrations.Migration):
    dependencies = [("triggers", "0003_permissions_to_watch_and_push")]

    operations = [
        migrations.AlterField(
            model_name="event",
            name="received_at",
            field=models.DateTimeField(
                db_default=models.Func(function="clock_timestamp", output_field=models.DateTimeField())
            ),
        ),
        migrations.RunSQL(SWITCH_OFF, DROP_SWITCH_OFF),
    ]
