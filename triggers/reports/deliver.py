"""Deliver reports of ends: an outbox topic."""

from collections.abc import Callable, Sequence
from typing import Any

from runs.db.nudge import nudge_dispatcher
from triggers.reports.end import End, end_of
from triggers.reports.events import record_events
from triggers.reports.notices import notify
from triggers.reports.replies import reply

DESTINATIONS: tuple[Callable[[Sequence[End]], None], ...] = (notify, record_events, reply)


def deliver_reports(payloads: Sequence[dict[str, Any]]) -> None:
    """Send each end where its reports say. One that this version cannot read fails alone, and is tried again."""
    ends = [end_of(payload) for payload in payloads]
    for send in DESTINATIONS:
        send(ends)
    nudge_dispatcher()
