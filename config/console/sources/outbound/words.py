"""Statuses and attempts of deliveries, as several pages show them."""

from collections.abc import Sequence
from typing import Any

from django.utils.dateparse import parse_datetime

from config.console.parts.links import event_link, link, page
from config.console.parts.moments import moment
from config.console.parts.sections import Section, Table
from triggers.models import Event, EventDelivery

SHOWN = 50
COLOURS = {"delivered": "success", "failed": "danger", "error": "danger", "pending": "info", "sending": "info"}


def delivery_link(delivery: EventDelivery) -> Any:
    return link(page("triggers_eventdelivery", delivery.pk), delivery.status)


def table_of(deliveries: Sequence[EventDelivery], *, title: str, empty: str, note: str = "") -> Table:
    """Deliveries with their events."""
    rows = [
        (
            event_link(one.event_id, one.event.type),
            delivery_link(one),
            one.reason,
            one.attempts,
            moment(one.entered_at),
            moment(one.due_at) if one.due_at else "–",
        )
        for one in deliveries
    ]
    headers = ("Event", "Status", "Why", "Attempts", "Entered", "Due")
    return Table(title=title, headers=headers, rows=rows, empty=empty, note=note)


def left_to(event: Event) -> list[Section]:
    """The subscriptions that an event has left to."""
    deliveries = list(
        EventDelivery.objects.filter(event=event).select_related("event").defer("tries").order_by("id")[:SHOWN]
    )
    if not deliveries:
        return []
    headers = ("Subscription", "Status", "Why", "Attempts", "Due")
    rows = [
        (one.name, delivery_link(one), one.reason, one.attempts, moment(one.due_at) if one.due_at else "–")
        for one in deliveries
    ]
    note = f"The first {SHOWN}." if len(deliveries) == SHOWN else ""
    return [Table(title="Left to subscriptions", headers=headers, rows=rows, empty="", note=note)]


def attempts_of(delivery: EventDelivery) -> Table:
    return Table(
        title="Attempts, oldest first",
        headers=("At", "Status", "Took", "Error", "First bytes of the answer"),
        rows=[
            (
                moment(parse_datetime(one["at"])),
                one.get("status") or "–",
                f"{one['seconds']:.2f} s" if "seconds" in one else "–",
                one["error"] or "none",
                one.get("answer", ""),
            )
            for one in delivery.tries
        ],
        empty="None yet.",
    )
