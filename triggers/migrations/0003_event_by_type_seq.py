"""A wait looks back by `seq`, which the database gives, and no longer by ids, which carry the clocks of web hosts."""

from django.db import migrations, models
from django.db.models import Q

INDEX = models.Index(fields=["type", "seq"], name="event_by_type_seq", condition=Q(dispatched_at__isnull=False))


class Migration(migrations.Migration):
    atomic = False  # the index is built beside everything that goes on; a build that was cut off is begun again
    dependencies = [("triggers", "0002_rules")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(
                    [
                        "DROP INDEX CONCURRENTLY IF EXISTS event_by_type_seq",
                        "CREATE INDEX CONCURRENTLY event_by_type_seq ON triggers_event (type, seq) "
                        "WHERE dispatched_at IS NOT NULL",
                    ],
                    "DROP INDEX CONCURRENTLY IF EXISTS event_by_type_seq",
                ),
                # Version N looks by id: it finds the same events by the primary key meanwhile.
                migrations.RunSQL(
                    "DROP INDEX CONCURRENTLY IF EXISTS event_by_type",
                    "CREATE INDEX CONCURRENTLY event_by_type ON triggers_event (type, id) WHERE dispatched_at IS NOT NULL",
                ),
            ],
            state_operations=[
                migrations.RemoveIndex("event", "event_by_type"),
                migrations.AddIndex("event", INDEX),
            ],
        ),
    ]
