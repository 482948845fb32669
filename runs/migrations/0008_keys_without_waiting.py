"""Looks at a key pass over no run of it that waits."""

from django.db import migrations, models
from django.db.models import Q

BLOCKED = models.Index(
    fields=["key", "seq"],
    name="run_blocked",
    condition=Q(status="queued", slot=None, due_at=None, ready_at=None, key__isnull=False),
)
DUE = models.Index(
    fields=["key", "seq"],
    name="run_due_by_key",
    condition=Q(status="queued", slot=None, due_at__isnull=False, key__isnull=False),
)


def built(name: str, condition: str) -> migrations.RunSQL:
    """Beside everything that goes on; a build that was cut off is begun again."""
    drop = f"DROP INDEX CONCURRENTLY IF EXISTS {name}"
    return migrations.RunSQL(
        [drop, f"CREATE INDEX CONCURRENTLY {name} ON runs_run (key, seq) WHERE {condition} AND key IS NOT NULL"], drop
    )


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("runs", "0007_audit_immutable")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                built("run_blocked", "status = 'queued' AND slot IS NULL AND due_at IS NULL AND ready_at IS NULL"),
                built("run_due_by_key", "status = 'queued' AND slot IS NULL AND due_at IS NOT NULL"),
            ],
            state_operations=[migrations.AddIndex("run", BLOCKED), migrations.AddIndex("run", DUE)],
        )
    ]
