"""Claims look at each agent they know, and the runs of one trigger take turns with those of the others."""

from django.db import migrations, models
from django.db.models import Q
from django.db.models.functions import Coalesce

CLAIMABLE = models.Index(
    "queue",
    "agent",
    "priority",
    Coalesce("turn", "seq"),
    "seq",
    name="run_claimable",
    condition=Q(status="queued", ready_at__isnull=False),
)


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("runs", "0008_keys_without_waiting")]

    operations = [
        migrations.AddField(
            "run",
            "turn",
            models.BigIntegerField(
                null=True, editable=False, help_text="its place among the runs of its priority; null: by `seq`"
            ),
        ),
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(
                    [
                        "DROP INDEX CONCURRENTLY IF EXISTS run_claimable",
                        "CREATE INDEX CONCURRENTLY run_claimable ON runs_run (queue, agent, priority, (coalesce(turn, seq)), seq) "
                        "WHERE status = 'queued' AND ready_at IS NOT NULL",
                    ],
                    "DROP INDEX CONCURRENTLY IF EXISTS run_claimable",
                ),
                # Version N claims by it, and sorts the ready runs without it: slower over a long queue, no less right.
                migrations.RunSQL(
                    "DROP INDEX CONCURRENTLY IF EXISTS run_ready",
                    "CREATE INDEX CONCURRENTLY run_ready ON runs_run (queue, priority, seq) "
                    "WHERE status = 'queued' AND ready_at IS NOT NULL",
                ),
            ],
            state_operations=[migrations.RemoveIndex("run", "run_ready"), migrations.AddIndex("run", CLAIMABLE)],
        ),
    ]
