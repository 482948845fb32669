"""The reason why a body was not JSON may go with the payload."""

from django.db import migrations

EVENT_IMMUTABLE = """
CREATE OR REPLACE TRIGGER event_immutable BEFORE UPDATE OF
    id, seq, source_id, ce_source, ce_id, type, "time",{data_error} body_sha256, received_at, target_id,
    root_id, cause_event_id, cause_run_id, depth, chain ON triggers_event
  FOR EACH ROW EXECUTE FUNCTION triggers_refuse_event_change();
"""
ERROR_IMMUTABLE = """
CREATE TRIGGER event_error_immutable BEFORE UPDATE OF data_error ON triggers_event FOR EACH ROW
  WHEN (NEW.data_error <> OLD.data_error AND (NEW.data_error <> '(erased)' OR NEW.payload_removed_at IS NULL))
  EXECUTE FUNCTION triggers_refuse_event_change();
"""


class Migration(migrations.Migration):
    dependencies = [("triggers", "0005_redispatch_in_turn")]

    operations = [
        migrations.RunSQL(
            ERROR_IMMUTABLE + EVENT_IMMUTABLE.format(data_error=""),
            EVENT_IMMUTABLE.format(data_error=" data_error,") + "DROP TRIGGER event_error_immutable ON triggers_event;",
        )
    ]
