"""Spans of events and their dispatch; nothing without an OTLP endpoint (`agents.telemetry`)."""

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from agents import telemetry
from agents.telemetry import Span
from triggers.models import Event


def tell_of_dispatch(event_ids: Sequence[UUID]) -> None:
    """Record the spans of events that were dispatched for the first time. Call it after the commit."""
    now = datetime.now(UTC)
    events = Event.objects.filter(pk__in=event_ids).select_related("source").defer("data", "body")
    for event in events:
        dispatched_at = event.dispatched_at or now
        own = Span.of(event.root_id, "event", event.pk)
        about = {"wakeful.event.id": str(event.pk), "wakeful.event.type": event.type}
        telemetry.record(
            own,
            f"event {event.type}",
            parent=Span.of(event.root_id, "run", event.cause_run_id) if event.cause_run_id else None,
            began=event.received_at,
            ended=dispatched_at,
            attributes={**about, "wakeful.source": event.source.slug},
            remote=(event.headers or {}).get("traceparent", ""),
            is_consumer=True,
        )
        telemetry.record(
            Span.of(event.root_id, "dispatch", event.pk),
            "dispatch",
            parent=own,
            began=dispatched_at,
            ended=max(dispatched_at, now),
            attributes=about,
        )
