from collections.abc import Sequence
from uuid import UUID

from agents import Event
from triggers.models import Event as EventRow


def read_events(event_ids: Sequence[UUID]) -> list[Event]:
    """Events as agents see them, in the order of arrival."""
    rows = EventRow.objects.filter(id__in=event_ids).order_by("seq").select_related("source")
    return [
        Event(
            id=row.id,
            type=row.type,
            source=row.source.slug,
            subject=row.subject,
            time=row.time or row.received_at,
            data=row.data,
        )
        for row in rows.defer("body", "headers")
    ]
