from django.db import migrations, models
from django.db.models import Q

SPENT = ["done", "used_up", "over"]
INDEX = models.Index(
    fields=["id"], name="schedule_paused", condition=Q(("paused_at__isnull", False), ~Q(("rest__in", SPENT)))
)


class Migration(migrations.Migration):
    atomic = False  # the index is built beside everything that goes on; a build that was cut off is begun again
    dependencies = [("triggers", "0010_decision_errors")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(
                    [
                        "DROP INDEX CONCURRENTLY IF EXISTS schedule_paused",
                        "CREATE INDEX CONCURRENTLY schedule_paused ON triggers_schedule (id) "
                        "WHERE paused_at IS NOT NULL AND NOT rest IN ('done', 'used_up', 'over')",
                    ],
                    "DROP INDEX CONCURRENTLY IF EXISTS schedule_paused",
                ),
            ],
            state_operations=[migrations.AddIndex("schedule", INDEX)],
        ),
    ]
