"""A version of the triggers, for the dispatcher: it rises with every transaction that changes what a rule is made of."""

from django.db import migrations

# Deferred: the one row is locked at the commit only, so no transaction that edits a trigger waits for another one's end.
# What is no part of a rule is named, so that a column added later counts. ALWAYS: replication and restores count as well.
VERSION = """
CREATE TABLE triggers_rulesversion (
  is_only boolean PRIMARY KEY DEFAULT true CHECK (is_only),
  version bigint NOT NULL DEFAULT 0,
  changed_by xid8
);
INSERT INTO triggers_rulesversion DEFAULT VALUES;

CREATE FUNCTION triggers_rules_changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO triggers_rulesversion (version, changed_by) VALUES (1, pg_current_xact_id())
  ON CONFLICT (is_only) DO UPDATE SET version = triggers_rulesversion.version + 1, changed_by = excluded.changed_by
  WHERE triggers_rulesversion.changed_by IS DISTINCT FROM excluded.changed_by;
  RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER rules_made AFTER INSERT OR DELETE ON triggers_trigger
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION triggers_rules_changed();
CREATE CONSTRAINT TRIGGER rules_edited AFTER UPDATE ON triggers_trigger
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
  WHEN (to_jsonb(OLD) - '{failures_in_a_row,declared,overrides,created_at}'::text[]
        IS DISTINCT FROM to_jsonb(NEW) - '{failures_in_a_row,declared,overrides,created_at}'::text[])
  EXECUTE FUNCTION triggers_rules_changed();
CREATE TRIGGER rules_emptied AFTER TRUNCATE ON triggers_trigger
  FOR EACH STATEMENT EXECUTE FUNCTION triggers_rules_changed();
ALTER TABLE triggers_trigger ENABLE ALWAYS TRIGGER rules_made;
ALTER TABLE triggers_trigger ENABLE ALWAYS TRIGGER rules_edited;
ALTER TABLE triggers_trigger ENABLE ALWAYS TRIGGER rules_emptied;
"""
DROP_VERSION = """
DROP TRIGGER rules_made ON triggers_trigger;
DROP TRIGGER rules_edited ON triggers_trigger;
DROP TRIGGER rules_emptied ON triggers_trigger;
DROP FUNCTION triggers_rules_changed();
DROP TABLE triggers_rulesversion;
"""


class Migration(migrations.Migration):
    dependencies = [("triggers", "0006_event_error_removed")]

    operations = [migrations.RunSQL(VERSION, DROP_VERSION)]
