from django.db import migrations, models
from django.db.models import Q

INDEX = models.Index(
    fields=["trigger", "outcome", "id"], name="decision_to_offer", condition=Q(outcome__in=["held", "error"])
)


class Migration(migrations.Migration):
    atomic = False  # the index is built beside everything that goes on; a build that was cut off is begun again
    dependencies = [("triggers", "0008_offer")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(
                    [
                        "DROP INDEX CONCURRENTLY IF EXISTS decision_to_offer",
                        "CREATE INDEX CONCURRENTLY decision_to_offer ON triggers_decision (trigger_id, outcome, id) "
                        "WHERE outcome IN ('held', 'error')",
                    ],
                    "DROP INDEX CONCURRENTLY IF EXISTS decision_to_offer",
                ),
            ],
            state_operations=[migrations.AddIndex("decision", INDEX)],
        ),
    ]
