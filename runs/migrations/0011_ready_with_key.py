"""The keys of one trigger take turns."""

from django.db import migrations, models
from django.db.models import Q
from django.db.models.functions import Coalesce

READY_WITH_KEY = models.Index(
    "queue",
    "priority",
    "trigger",
    Coalesce("turn", "seq"),
    name="run_ready_with_key",
    condition=Q(status="queued", ready_at__isnull=False, key__isnull=False),
)


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("runs", "0010_primary")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(
                    [
                        "DROP INDEX CONCURRENTLY IF EXISTS run_ready_with_key",
                        "CREATE INDEX CONCURRENTLY run_ready_with_key ON runs_run (queue, priority, trigger, (coalesce(turn, seq))) "
                        "WHERE status = 'queued' AND ready_at IS NOT NULL AND key IS NOT NULL",
                    ],
                    "DROP INDEX CONCURRENTLY IF EXISTS run_ready_with_key",
                ),
            ],
            state_operations=[migrations.AddIndex("run", READY_WITH_KEY)],
        ),
    ]
