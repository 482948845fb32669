"""Ends of runs are noted for the counters of /metrics, in the transaction that ends them, whichever way leads there: by their owner, a
rescuer, a person, or a process of an earlier version."""

from importlib import import_module

from django.db import migrations

REPORT = import_module("runs.migrations.0012_report_of_an_end").REPORT
FORMER_FUNCTION = REPORT[: REPORT.index("CREATE TRIGGER")].replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION", 1)
FORMER_CONDITION = """
  IF NEW.finished_at IS NULL OR OLD.finished_at IS NOT NULL OR NOT NEW.policy ? 'reports' THEN
    RETURN NULL;
  END IF;
"""
CONDITION = """
  IF NEW.finished_at IS NULL OR OLD.finished_at IS NOT NULL THEN
    RETURN NULL;
  END IF;
  IF (SELECT last_value FROM runs_ends_are_counted_until) > extract(epoch FROM NEW.finished_at) THEN
    INSERT INTO runs_uncountedend VALUES (NEW.agent, NEW.status, NEW.created_at, NEW.started_at, NEW.finished_at);
  END IF;
  IF NOT NEW.policy ? 'reports' THEN
    RETURN NULL;
  END IF;
"""
# Unlogged and without an index: a row costs no WAL, and what a crash of the server loses is what has ended since the last scrape.
# The sequence holds until when ends are noted, in seconds of the epoch. A scrape moves it on; so without one the table does not grow.
# VACUUM does not truncate the table: it would lock it, and no end of a run waits for that.
NOTED = f"""
CREATE UNLOGGED TABLE runs_uncountedend (
  agent text NOT NULL, status text NOT NULL, created_at timestamptz NOT NULL, started_at timestamptz, finished_at timestamptz NOT NULL
) WITH (vacuum_truncate = false);
CREATE UNLOGGED SEQUENCE runs_ends_are_counted_until;
{FORMER_FUNCTION.replace(FORMER_CONDITION, CONDITION)}
"""
NOT_NOTED = f"""
{FORMER_FUNCTION}
DROP TABLE runs_uncountedend;
DROP SEQUENCE runs_ends_are_counted_until;
"""


class Migration(migrations.Migration):
    dependencies = [("runs", "0015_replies")]

    operations = [migrations.RunSQL(NOTED, NOT_NOTED)]
