"""The list of schedules begins with those that fire next; without an index each page sorted all of them.

Each statement may be repeated: a run that was interrupted leaves an index that is not valid, which the next run makes again."""

from django.db import migrations, models

NAME = "schedule_by_next_fire"
DROP = f"DROP INDEX CONCURRENTLY IF EXISTS {NAME}"


class Migration(migrations.Migration):
    atomic = False  # schedules fire meanwhile

    dependencies = [("triggers", "0017_begin_batch")]

    operations = [
        migrations.RunSQL(DROP, migrations.RunSQL.noop),
        migrations.RunSQL(
            f"CREATE INDEX CONCURRENTLY {NAME} ON triggers_schedule (next_fire_at, id)",
            DROP,
            state_operations=[
                migrations.AddIndex("schedule", models.Index(fields=["next_fire_at", "id"], name=NAME)),
            ],
        ),
    ]
