"""One CHECK that calls a function instead of eleven, and one trigger instead of three with conditions. Each statement of PostgreSQL
reads and plans the expressions of both again (a third of the CPU of an UPDATE of a run), but a function once for each session."""

from importlib import import_module

from django.db import migrations, models
from django.db.models import F, Func

before = import_module(f"{__package__}.0002_rules")

FUNCTION = """
CREATE FUNCTION runs_is_consistent(
  status text, ready_at timestamptz, due_at timestamptz, claimed_at timestamptz, deadline_at timestamptz, finished_at timestamptz,
  key text, key_limit int, slot int, worker_id uuid, pid int, attempt int, epoch int
) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
  broken text := CASE
    WHEN status NOT IN ('queued', 'running', 'waiting', 'uncertain', 'succeeded', 'failed', 'cancelled') THEN 'run_status_known'
    WHEN slot IS NOT NULL AND key IS NULL THEN 'run_slot_needs_key'
    WHEN ready_at IS NOT NULL AND (status <> 'queued' OR (key IS NOT NULL AND slot IS NULL)) THEN 'run_ready_is_queued_and_admitted'
    WHEN due_at IS NOT NULL AND (status <> 'queued' OR ready_at IS NOT NULL) THEN 'run_due_is_queued'
    WHEN status = 'running' AND (worker_id IS NULL OR pid IS NULL OR claimed_at IS NULL OR deadline_at IS NULL)
      THEN 'run_running_is_owned'
    WHEN (status IN ('succeeded', 'failed', 'cancelled')) <> (finished_at IS NOT NULL) THEN 'run_finished_has_time'
    WHEN finished_at IS NOT NULL AND slot IS NOT NULL THEN 'run_finished_holds_no_slot'
    WHEN least(attempt, epoch, key_limit, slot) < 0 THEN 'run_counts_from_zero'
  END;
BEGIN
  IF broken IS NULL THEN
    RETURN true;
  END IF;
  RAISE EXCEPTION 'a run that is % breaks %', status, broken
    USING ERRCODE = 'check_violation', CONSTRAINT = broken, TABLE = 'runs_run';
END $$;
"""
TRIGGER = """
CREATE FUNCTION runs_refuse_illegal_change() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  broken text := CASE
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
  RAISE EXCEPTION 'run %: % -> % breaks %', OLD.id, OLD.status, NEW.status, broken
    USING ERRCODE = 'check_violation', CONSTRAINT = broken, TABLE = 'runs_run';
END $$;
CREATE TRIGGER run_changes_legally BEFORE UPDATE ON runs_run FOR EACH ROW EXECUTE FUNCTION runs_refuse_illegal_change();

DROP TRIGGER run_epoch_rises ON runs_run;
DROP FUNCTION runs_refuse_falling_epoch();
DROP TRIGGER run_legal_transition ON runs_run;
DROP FUNCTION runs_refuse_illegal_transition();
DROP TRIGGER run_stays_tainted ON runs_run;
DROP FUNCTION runs_refuse_loss_of_taint();
"""
NO_TRIGGER = f"""
DROP TRIGGER run_changes_legally ON runs_run;
DROP FUNCTION runs_refuse_illegal_change();
{before.TRANSITIONS}
{before.TAINTED}
"""
# Of Django's own columns, which may not be negative.
COUNTS = """
ALTER TABLE runs_run DROP CONSTRAINT runs_run_attempt_check, DROP CONSTRAINT runs_run_epoch_check,
  DROP CONSTRAINT runs_run_key_limit_check, DROP CONSTRAINT runs_run_slot_check
"""
CHECK_COUNTS = """
ALTER TABLE runs_run ADD CONSTRAINT runs_run_attempt_check CHECK (attempt >= 0),
  ADD CONSTRAINT runs_run_epoch_check CHECK (epoch >= 0), ADD CONSTRAINT runs_run_key_limit_check CHECK (key_limit >= 0),
  ADD CONSTRAINT runs_run_slot_check CHECK (slot >= 0)
"""


class Migration(migrations.Migration):

    dependencies = [
        ('runs', '0009_attempts_of_successes'),
    ]

    operations = [
        migrations.RunSQL(FUNCTION, "DROP FUNCTION runs_is_consistent"),
        migrations.AddConstraint(
            model_name='run',
            constraint=models.CheckConstraint(
                condition=Func(
                    F('status'), F('ready_at'), F('due_at'), F('claimed_at'), F('deadline_at'), F('finished_at'),
                    F('key'), F('key_limit'), F('slot'), F('worker_id'), F('pid'), F('attempt'), F('epoch'),
                    function='runs_is_consistent', output_field=models.BooleanField(),
                ),
                name='run_is_consistent',
            ),
        ),
        migrations.RunSQL(TRIGGER, NO_TRIGGER),
        migrations.RunSQL(COUNTS, CHECK_COUNTS),
        *(
            migrations.RemoveConstraint(model_name='run', name=name)
            for name in (
                'run_status_known', 'run_slot_needs_key', 'run_ready_is_queued_and_admitted', 'run_due_is_queued',
                'run_running_is_owned', 'run_finished_has_time', 'run_finished_holds_no_slot',
            )
        ),
    ]
