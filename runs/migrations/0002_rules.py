"""Rules a constraint cannot say: legal transitions, an epoch that only rises, vacuum settings of the hot tables."""

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
# Their rows change status a few times each: without this the partial indexes fill with dead entries.
VACUUM = "(autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0)"
NO_VACUUM = "(autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, autovacuum_vacuum_cost_delay)"


class Migration(migrations.Migration):
    dependencies = [("runs", "0001_initial")]

    operations = [
        migrations.RunSQL(TRANSITIONS, DROP_TRANSITIONS),
        *[
            migrations.RunSQL(f"ALTER TABLE {table} SET {VACUUM}", f"ALTER TABLE {table} RESET {NO_VACUUM}")
            for table in ("runs_run", "runs_outboxmessage")
        ],
    ]
