"""Paused triggers are few; without an index the overview, health and metrics read all triggers to find them.

Each statement may be repeated: a run that was interrupted leaves an index that is not valid, which the next run makes again."""

from django.db import migrations, models
from django.db.models import Q

NAME = "trigger_paused"
DROP = f"DROP INDEX CONCURRENTLY IF EXISTS {NAME}"


class Migration(migrations.Migration):
    atomic = False  # triggers are edited meanwhile

    dependencies = [("triggers", "0022_emit")]

    operations = [
        migrations.RunSQL(DROP, migrations.RunSQL.noop),
        migrations.RunSQL(
            f"CREATE INDEX CONCURRENTLY {NAME} ON triggers_trigger (paused_at) WHERE enabled AND paused_at IS NOT NULL",
            DROP,
            state_operations=[
                migrations.AddIndex(
                    "trigger",
                    models.Index(
                        fields=["paused_at"], name=NAME, condition=Q(enabled=True, paused_at__isnull=False)
                    ),
                ),
            ],
        ),
    ]
