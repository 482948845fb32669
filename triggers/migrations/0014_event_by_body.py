from django.db import migrations, models
from django.db.models import Q

INDEX = models.Index(
    fields=["source", "body_sha256", "seq"],
    name="event_by_body",
    condition=Q(dispatched_at__isnull=False) & ~Q(body_sha256=""),
)


class Migration(migrations.Migration):
    atomic = False  # the index is built beside everything that goes on; a build that was cut off is begun again
    dependencies = [("triggers", "0013_offer_failures")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(
                    [
                        "DROP INDEX CONCURRENTLY IF EXISTS event_by_body",
                        "CREATE INDEX CONCURRENTLY event_by_body ON triggers_event (source_id, body_sha256, seq) "
                        "WHERE dispatched_at IS NOT NULL AND NOT body_sha256 = ''",
                    ],
                    "DROP INDEX CONCURRENTLY IF EXISTS event_by_body",
                ),
            ],
            state_operations=[migrations.AddIndex("event", INDEX)],
        ),
    ]
