"""`run.finished` is reserved for reports of runs: `wakeful_emit` refuses it, as it does the other types that Wakeful alone records."""

from importlib import import_module

from django.db import migrations

# With its search path and its rights, which the function would lose or keep by accident otherwise.
FORMER = import_module("triggers.migrations.0022_emit").EMIT.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION")
EMIT = FORMER.replace("'run.wakeup', 'schedule.fired'", "'run.wakeup', 'run.finished', 'schedule.fired'")


class Migration(migrations.Migration):
    dependencies = [("triggers", "0027_reports_of_a_window")]

    operations = [migrations.RunSQL(EMIT, FORMER)]
