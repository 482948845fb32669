"""One trigger instead of eleven CHECK constraints and three triggers with conditions: PostgreSQL reads and plans these anew for each
statement (a third of the CPU of an UPDATE of a run), but a function once for each session."""

from importlib import import_module

from django.db import migrations

before = import_module(f"{__package__}.0002_rules")

CHECK = """
CREATE FUNCTION runs_check_run() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  -- OLD is NULL where a row is inserted.
  broken text := CASE
    WHEN NEW.status NOT IN ('queued', 'running', 'waiting', 'uncertain', 'succeeded', 'failed', 'cancelled') THEN 'run_status_known'
    WHEN NEW.slot IS NOT NULL AND NEW.key IS NULL THEN 'run_slot_needs_key'
    WHEN NEW.ready_at IS NOT NULL AND (NEW.status <> 'queued' OR (NEW.key IS NOT NULL AND NEW.slot IS NULL))
      THEN 'run_ready_is_queued_and_admitted'
    WHEN NEW.due_at IS NOT NULL AND (NEW.status <> 'queued' OR NEW.ready_at IS NOT NULL) THEN 'run_due_is_queued'
    WHEN NEW.status = 'running'
      AND (NEW.worker_id IS NULL OR NEW.pid IS NULL OR NEW.claimed_at IS NULL OR NEW.deadline_at IS NULL) THEN 'run_running_is_owned'
    WHEN (NEW.status IN ('succeeded', 'failed', 'cancelled')) <> (NEW.finished_at IS NOT NULL) THEN 'run_finished_has_time'
    WHEN NEW.finished_at IS NOT NULL AND NEW.slot IS NOT NULL THEN 'run_finished_holds_no_slot'
    WHEN least(NEW.attempt, NEW.epoch, NEW.key_limit, NEW.slot) < 0 THEN 'run_counts_from_zero'
    WHEN NEW.epoch < OLD.epoch THEN 'run_epoch_rises'
    WHEN OLD.is_tainted AND NOT NEW.is_tainted THEN 'run_stays_tainted'
    WHEN OLD.status <> NEW.status AND (OLD.status, NEW.status) NOT IN (
      ('queued', 'running'), ('queued', 'cancelled'),
      ('running', 'succeeded'), ('running', 'queued'), ('running', 'waiting'), ('running', 'uncertain'),
      ('running', 'failed'), ('running', 'cancelled'),
      ('waiting', 'queued'), ('waiting', 'cancelled'),
      ('uncertain', 'queued'), ('uncertain', 'failed'), ('uncertain', 'cancelled'),
      ('failed', 'queued'), ('cancelled', 'queued')) THEN 'run_legal_transition'
  END;
BEGIN
  IF broken IS NULL THEN
    RETURN NEW;
  END IF;
  RAISE EXCEPTION 'run %: % -> % breaks %', NEW.id, OLD.status, NEW.status, broken
    USING ERRCODE = 'check_violation', CONSTRAINT = broken, TABLE = 'runs_run';
END $$;
CREATE TRIGGER run_is_checked BEFORE INSERT OR UPDATE ON runs_run FOR EACH ROW EXECUTE FUNCTION runs_check_run();

ALTER TABLE runs_run DROP CONSTRAINT runs_run_attempt_check, DROP CONSTRAINT runs_run_epoch_check,
  DROP CONSTRAINT runs_run_key_limit_check, DROP CONSTRAINT runs_run_slot_check;
DROP TRIGGER run_epoch_rises ON runs_run;
DROP FUNCTION runs_refuse_falling_epoch();
DROP TRIGGER run_legal_transition ON runs_run;
DROP FUNCTION runs_refuse_illegal_transition();
DROP TRIGGER run_stays_tainted ON runs_run;
DROP FUNCTION runs_refuse_loss_of_taint();
"""
# What `0002_rules` and Django had made.
UNCHECK = f"""
DROP TRIGGER run_is_checked ON runs_run;
DROP FUNCTION runs_check_run();
ALTER TABLE runs_run ADD CONSTRAINT runs_run_attempt_check CHECK (attempt >= 0),
  ADD CONSTRAINT runs_run_epoch_check CHECK (epoch >= 0), ADD CONSTRAINT runs_run_key_limit_check CHECK (key_limit >= 0),
  ADD CONSTRAINT runs_run_slot_check CHECK (slot >= 0);
{before.TRANSITIONS}
{before.TAINTED}
"""


class Migration(migrations.Migration):

    dependencies = [
        ('runs', '0009_attempts_of_successes'),
    ]

    operations = [
        migrations.RunSQL(CHECK, UNCHECK),
        *(
            migrations.RemoveConstraint(model_name='run', name=name)
            for name in (
                'run_status_known', 'run_slot_needs_key', 'run_ready_is_queued_and_admitted', 'run_due_is_queued',
                'run_running_is_owned', 'run_finished_has_time', 'run_finished_holds_no_slot',
            )
        ),
    ]
