"""The row of an atomic run that succeeded says all of its last attempt. So `runs_attempt` becomes a view, of these runs and of the
rows that are stored for all other attempts."""

import django.db.models.deletion
from django.db import migrations, models

VIEW = """
ALTER TABLE runs_attempt RENAME TO runs_attemptrow;
CREATE VIEW runs_attempt AS
  SELECT id, run_id, epoch, number, worker_id, pid, started_at, ended_at, outcome, error, traceback FROM runs_attemptrow
  UNION ALL
  SELECT NULL, id, epoch, attempt, worker_id, pid, claimed_at, finished_at, 'succeeded', '', ''
  FROM runs_run run
  WHERE status = 'succeeded' AND claimed_at IS NOT NULL AND NOT EXISTS (
    SELECT FROM runs_attemptrow attempt WHERE attempt.run_id = run.id AND attempt.epoch = run.epoch);
"""
# The code of before this migration writes into the view, while both versions run.
STORES = """
CREATE FUNCTION runs_store_attempt() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    INSERT INTO runs_attemptrow (run_id, epoch, number, worker_id, pid, started_at, ended_at, outcome, error, traceback)
    VALUES (NEW.run_id, NEW.epoch, NEW.number, NEW.worker_id, NEW.pid, NEW.started_at, NEW.ended_at, NEW.outcome, NEW.error,
            NEW.traceback)
    RETURNING id INTO NEW.id;
    RETURN NEW;
  END IF;
  IF TG_OP = 'UPDATE' THEN
    UPDATE runs_attemptrow SET started_at = NEW.started_at, ended_at = NEW.ended_at, outcome = NEW.outcome, error = NEW.error,
      traceback = NEW.traceback
    WHERE id = OLD.id;
    RETURN NEW;
  END IF;
  DELETE FROM runs_attemptrow WHERE id = OLD.id;
  RETURN OLD;
END $$;
CREATE TRIGGER attempt_is_stored INSTEAD OF INSERT OR UPDATE OR DELETE ON runs_attempt
  FOR EACH ROW EXECUTE FUNCTION runs_store_attempt();
"""
# With the rows that the code of before expects.
TABLE = """
INSERT INTO runs_attemptrow (run_id, epoch, number, worker_id, pid, started_at, ended_at, outcome, error, traceback)
SELECT run_id, epoch, number, worker_id, pid, started_at, ended_at, outcome, error, traceback FROM runs_attempt WHERE id IS NULL;
DROP VIEW runs_attempt;
DROP FUNCTION runs_store_attempt();
ALTER TABLE runs_attemptrow RENAME TO runs_attempt;
"""


class Migration(migrations.Migration):

    dependencies = [
        ('runs', '0008_requests_of_callers'),
    ]

    operations = [
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.AlterModelOptions(
                    name='attempt',
                    options={'managed': False, 'ordering': ['epoch']},
                ),
                migrations.AlterModelTable(name='attempt', table='runs_attempt'),
                migrations.CreateModel(
                    name='AttemptRow',
                    fields=[
                        ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                        ('epoch', models.PositiveIntegerField()),
                        ('number', models.PositiveIntegerField()),
                        ('pid', models.IntegerField(null=True)),
                        ('started_at', models.DateTimeField()),
                        ('ended_at', models.DateTimeField()),
                        ('outcome', models.TextField(choices=[('succeeded', 'Succeeded'), ('failed', 'Failed'), ('lost', 'Lost'), ('released', 'Released'), ('cancelled', 'Cancelled'), ('deadline', 'Deadline'), ('waiting', 'Waiting'), ('uncertain', 'Uncertain')])),
                        ('error', models.TextField(default='')),
                        ('traceback', models.TextField(default='')),
                        ('run', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='runs.run')),
                        ('worker', models.ForeignKey(db_constraint=False, db_index=False, null=True, on_delete=django.db.models.deletion.DO_NOTHING, related_name='+', to='runs.worker')),
                    ],
                    options={
                        'default_permissions': (),
                        'constraints': [models.UniqueConstraint(fields=('run', 'epoch'), name='attempt_one_per_claim')],
                    },
                ),
            ],
        ),
        migrations.RunSQL(VIEW, TABLE),
        migrations.RunSQL(STORES, migrations.RunSQL.noop),
    ]
