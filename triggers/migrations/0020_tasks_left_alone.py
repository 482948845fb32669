"""The periodic tasks that Wakeful fired before it left those of others alone; an index for the problem that names them."""

from django.db import migrations, models

NAME = "schedule_left_alone"
DROP = f"DROP INDEX CONCURRENTLY IF EXISTS {NAME}"


class Migration(migrations.Migration):
    atomic = False  # schedules fire meanwhile

    dependencies = [("triggers", "0019_own_tasks")]

    operations = [
        migrations.RunSQL(DROP, migrations.RunSQL.noop),
        migrations.RunSQL(
            f"CREATE INDEX CONCURRENTLY {NAME} ON triggers_schedule (id) WHERE rest = 'foreign' AND fired_at IS NOT NULL",
            DROP,
            state_operations=[
                migrations.AddIndex(
                    "schedule",
                    models.Index(
                        fields=["id"], name=NAME, condition=models.Q(rest="foreign", fired_at__isnull=False)
                    ),
                ),
            ],
        ),
    ]
