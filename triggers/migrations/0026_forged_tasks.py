"""`wakeful_task` knows only what `wakeful_emit` has recorded. An imported event may have any source in its archive, so it is no task: who
may import and replay events would else call any task with any arguments."""

from importlib import import_module

from django.db import migrations

# With its search path and its rights, which the function would lose or keep by accident otherwise.
FORMER = import_module("triggers.migrations.0025_django_tasks").TASK.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION")
ENQUEUED = "source.slug = 'emit' AND source.kind = 'emit' AND event.imported_at IS NULL"
TASK = FORMER.replace("source.slug = 'emit'", ENQUEUED)


class Migration(migrations.Migration):
    dependencies = [("triggers", "0025_django_tasks")]

    operations = [migrations.RunSQL(TASK, FORMER)]
