"""Rules a constraint cannot say: legal transitions, an epoch that only rises, taint that stays, how each busy table is vacuumed."""

from django.db import migrations

TRANSITIONS = """
CREATE FUNCTION runs_refuse_illegal_transition() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF (OLD.status, NEW.status) NOT IN (
    ('queued', 'running'), ('queued', 'cancelled'),
    ('running', 'succeeded'), ('running', 'queued'), ('running', 'waiting'), ('running', 'uncertain'),
    ('running', 'failed'), ('running', 'cancelled'),
    ('waiting', 'queued'), ('waiting', 'cancelled'),
    ('uncertain', 'queued'), ('uncertain', 'failed'), ('uncertain', 'cancelled'),
    ('failed', 'queued'), ('cancelled', 'queued')
  ) THEN
    RAISE EXCEPTION 'run %: % -> % is not a legal transition', OLD.id, OLD.status, NEW.status
      USING ERRCODE = 'check_violation', CONSTRAINT = 'run_legal_transition';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER run_legal_transition BEFORE UPDATE OF status ON runs_run
  FOR EACH ROW WHEN (OLD.status <> NEW.status) EXECUTE FUNCTION runs_refuse_illegal_transition();

CREATE FUNCTION runs_refuse_falling_epoch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'run %: epoch may not fall from % to %', OLD.id, OLD.epoch, NEW.epoch
    USING ERRCODE = 'check_violation', CONSTRAINT = 'run_epoch_rises';
END $$;
CREATE TRIGGER run_epoch_rises BEFORE UPDATE OF epoch ON runs_run
  FOR EACH ROW WHEN (NEW.epoch < OLD.epoch) EXECUTE FUNCTION runs_refuse_falling_epoch();
"""
DROP_TRANSITIONS = """
DROP TRIGGER run_epoch_rises ON runs_run;
DROP FUNCTION runs_refuse_falling_epoch();
DROP TRIGGER run_legal_transition ON runs_run;
DROP FUNCTION runs_refuse_illegal_transition();
"""
TAINTED = """
CREATE FUNCTION runs_refuse_loss_of_taint() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'run % has seen untrusted data; this cannot be undone', OLD.id
    USING ERRCODE = 'check_violation', CONSTRAINT = 'run_stays_tainted';
END $$;
CREATE TRIGGER run_stays_tainted BEFORE UPDATE OF is_tainted ON runs_run
  FOR EACH ROW WHEN (OLD.is_tainted AND NOT NEW.is_tainted) EXECUTE FUNCTION runs_refuse_loss_of_taint();
"""
DROP_TAINTED = """
DROP TRIGGER run_stays_tainted ON runs_run;
DROP FUNCTION runs_refuse_loss_of_taint();
"""
# Rows of these change a few times each and then never again, or are soon deleted. Without this the partial indexes fill
# with dead entries that every look of a dispatcher or a worker must step over.
CHURNED = "autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0"
# Written once and never changed until retention takes them, many at a time: vacuumed after every twentieth part of new
# rows, so that the freezing is done in small pieces, and soon after a pruning, so that its space is used again.
APPENDED = "autovacuum_vacuum_insert_scale_factor = 0.05, autovacuum_vacuum_scale_factor = 0.02"
# A few rows, each rewritten all the time. Half of every page is left free for that, so that no index is touched, and a
# few hundred dead rows are many beside them.
REWRITTEN = "fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200"
STORAGE = {
    "runs_run": CHURNED,
    "runs_outboxmessage": CHURNED,
    "runs_wait": CHURNED,
    "runs_delivery": CHURNED,
    "runs_attempt": APPENDED,
    "runs_step": APPENDED,
    "runs_processedevent": APPENDED,
    "runs_worker": REWRITTEN,
    "runs_sweep": REWRITTEN,
}

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
# Retention deletes a notification in one statement, and what became of it goes along.
CASCADE_OF_NOTIFICATIONS = """
ALTER TABLE runs_delivery ADD CONSTRAINT delivery_of_notification
  FOREIGN KEY (notification_id) REFERENCES runs_notification (id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED;
ALTER TABLE runs_delivery ADD CONSTRAINT delivery_of_carrier
  FOREIGN KEY (merged_into_id) REFERENCES runs_delivery (id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED;
"""
NO_CASCADE_OF_NOTIFICATIONS = """
ALTER TABLE runs_delivery DROP CONSTRAINT delivery_of_carrier;
ALTER TABLE runs_delivery DROP CONSTRAINT delivery_of_notification;
"""
# Retention deletes an incident in one statement, and the rows of its runs go along.
CASCADE_OF_INCIDENTS = """
ALTER TABLE runs_coveredrun ADD CONSTRAINT covered_of_incident
  FOREIGN KEY (incident_id) REFERENCES runs_incident (id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED
"""
NO_CASCADE_OF_INCIDENTS = "ALTER TABLE runs_coveredrun DROP CONSTRAINT covered_of_incident"


def names_in(settings: str) -> str:
    return ", ".join(setting.split(" = ")[0] for setting in settings.split(", "))


class Migration(migrations.Migration):
    dependencies = [("runs", "0001_initial")]

    operations = [
        # A run is found by the event that gave it its id through the primary key; by those that joined it, through this.
        migrations.RunSQL(
            "CREATE INDEX run_by_joined_event ON runs_run USING gin (event_ids) WHERE cardinality(event_ids) > 1",
            "DROP INDEX run_by_joined_event",
        ),
        migrations.RunSQL(TRANSITIONS, DROP_TRANSITIONS),
        migrations.RunSQL(TAINTED, DROP_TAINTED),
        migrations.RunSQL(IMMUTABLE, MUTABLE),
        migrations.RunSQL(TIMELINE, DROP_TIMELINE),
        migrations.RunSQL(CASCADE_OF_NOTIFICATIONS, NO_CASCADE_OF_NOTIFICATIONS),
        migrations.RunSQL(CASCADE_OF_INCIDENTS, NO_CASCADE_OF_INCIDENTS),
        *[
            migrations.RunSQL(
                f"ALTER TABLE {table} SET ({settings})", f"ALTER TABLE {table} RESET ({names_in(settings)})"
            )
            for table, settings in STORAGE.items()
        ],
    ]
