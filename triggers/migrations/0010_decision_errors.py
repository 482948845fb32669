from django.db import migrations, models
from django.db.models import Q

INDEX = models.Index(fields=["trigger", "created_at"], name="decision_errors", condition=Q(outcome="error"))


class Migration(migrations.Migration):
    atomic = False  # the index is built beside everything that goes on; a build that was cut off is begun again
    dependencies = [("triggers", "0009_decision_to_offer")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(
                    [
                        "DROP INDEX CONCURRENTLY IF EXISTS decision_errors",
                        "CREATE INDEX CONCURRENTLY decision_errors ON triggers_decision (trigger_id, created_at) "
                        "WHERE outcome = 'error'",
                    ],
                    "DROP INDEX CONCURRENTLY IF EXISTS decision_errors",
                ),
            ],
            state_operations=[migrations.AddIndex("decision", INDEX)],
        ),
    ]
