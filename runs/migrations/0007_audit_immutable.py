"""Audit entries name the client's address, and do not change."""

from django.db import migrations, models

IMMUTABLE = """
CREATE FUNCTION runs_refuse_audit_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF current_setting('wakeful.removing', true) = 'on' THEN
    -- Retention deletes entries; erasure takes members out of their detail.
    IF TG_OP = 'DELETE' THEN
      RETURN OLD;
    END IF;
    IF TG_OP = 'UPDATE' THEN
      IF OLD.detail @> NEW.detail AND to_jsonb(OLD) - 'detail' = to_jsonb(NEW) - 'detail' THEN
        RETURN NEW;
      END IF;
    END IF;
  END IF;
  RAISE EXCEPTION 'audit entries are immutable' USING ERRCODE = 'check_violation', CONSTRAINT = 'audit_immutable';
END $$;
CREATE TRIGGER audit_immutable BEFORE UPDATE OR DELETE ON runs_auditentry
  FOR EACH ROW EXECUTE FUNCTION runs_refuse_audit_change();
CREATE TRIGGER audit_not_truncated BEFORE TRUNCATE ON runs_auditentry
  FOR EACH STATEMENT EXECUTE FUNCTION runs_refuse_audit_change();
"""
MUTABLE = """
DROP TRIGGER audit_not_truncated ON runs_auditentry;
DROP TRIGGER audit_immutable ON runs_auditentry;
DROP FUNCTION runs_refuse_audit_change();
"""


class Migration(migrations.Migration):
    dependencies = [("runs", "0006_worker_troubles")]

    operations = [
        migrations.AddField(
            model_name="auditentry",
            name="address",
            field=models.TextField(
                db_default="", default="", help_text="the client's IP address; empty at the command line"
            ),
        ),
        migrations.RunSQL(IMMUTABLE, MUTABLE),
    ]
