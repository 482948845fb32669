"""The overview reads the first triggers of each agent: without an index, all triggers once for each agent.

Each statement may be repeated: a run that was interrupted leaves an index that is not valid, which the next run makes again."""

from django.db import migrations, models

NAME = "trigger_by_agent"
DROP = f"DROP INDEX CONCURRENTLY IF EXISTS {NAME}"


class Migration(migrations.Migration):
    atomic = False  # triggers are edited meanwhile

    dependencies = [("triggers", "0030_push_channels")]

    operations = [
        migrations.RunSQL(DROP, migrations.RunSQL.noop),
        migrations.RunSQL(
            f"CREATE INDEX CONCURRENTLY {NAME} ON triggers_trigger (agent, slug)",
            DROP,
            state_operations=[
                migrations.AddIndex("trigger", models.Index(fields=["agent", "slug"], name=NAME)),
            ],
        ),
    ]
