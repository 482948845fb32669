"""Many schedules made at once: the function that each inserted periodic task calls finds its schedule by the index. PostgreSQL keeps
the plan that the session made first, and for a table that was empty then it was a sequential scan: n schedules read n² / 2 rows."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("triggers", "0023_paused_triggers")]

    operations = [
        migrations.RunSQL(
            "ALTER FUNCTION triggers_task_edited() SET enable_seqscan TO off",
            "ALTER FUNCTION triggers_task_edited() RESET enable_seqscan",
        )
    ]
