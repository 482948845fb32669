"""All readers of events go by `seq`: its indexes, which events enter at dispatch, take the place of those by id.

Each statement may be repeated: a run that was interrupted leaves an index that is not valid, which the next run makes again."""

from django.db import migrations, models
from django.db.models import Q

IS_DISPATCHED = Q(dispatched_at__isnull=False)
MADE = {
    "event_dispatched": ("(seq) WHERE dispatched_at IS NOT NULL", models.Index(fields=["seq"], name="event_dispatched", condition=IS_DISPATCHED)),
    "event_by_source_seq": (
        "(source_id, seq) WHERE dispatched_at IS NOT NULL",
        models.Index(fields=["source", "seq"], name="event_by_source_seq", condition=IS_DISPATCHED),
    ),
    "event_imported": (
        "(received_at, seq) WHERE imported_at IS NOT NULL",
        models.Index(fields=["received_at", "seq"], name="event_imported", condition=Q(imported_at__isnull=False)),
    ),
}
GONE = {
    "event_by_type": "(type, id) WHERE dispatched_at IS NOT NULL",
    "event_by_source": "(source_id, id) WHERE dispatched_at IS NOT NULL",
}


def drop(name):
    return f"DROP INDEX CONCURRENTLY IF EXISTS {name}"


def create(name, definition):
    return f"CREATE INDEX CONCURRENTLY {name} ON triggers_event {definition}"


class Migration(migrations.Migration):
    atomic = False  # events are accepted and dispatched meanwhile

    dependencies = [("triggers", "0010_trusted_sources")]

    operations = [
        *(
            migrations.SeparateDatabaseAndState(
                database_operations=[
                    migrations.RunSQL(drop(name), migrations.RunSQL.noop),
                    migrations.RunSQL(create(name, definition), drop(name)),
                ],
                state_operations=[migrations.AddIndex("event", index)],
            )
            for name, (definition, index) in MADE.items()
        ),
        *(
            migrations.SeparateDatabaseAndState(
                database_operations=[
                    migrations.RunSQL(migrations.RunSQL.noop, create(name, definition)),
                    migrations.RunSQL(drop(name), drop(name)),
                ],
                state_operations=[migrations.RemoveIndex("event", name)],
            )
            for name, definition in GONE.items()
        ),
    ]
