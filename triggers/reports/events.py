"""Reports as an event `run.finished`, for those who listen to its type and for the subscriptions that reports name.

An end has one event however many reports it has. The event goes on with the causal chain of its run, so that a trigger whose runs wake
it again is a loop like any other. Without a report that asks for the event, it is recorded as dispatched: it only goes to the
subscriptions.
"""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import structlog
from uuid_utils.compat import uuid7

from agents.kernel.reserved_types import FINISHED
from runs.db.sql import execute, fetch_column
from runs.models import Notification
from runs.models.delivery import new_id
from triggers.accept import Incoming, accept_own, builtin_source
from triggers.reports.end import End

log = structlog.get_logger(__name__)

DISABLED = "the subscription is disabled"
DISPATCHED = "UPDATE triggers_event SET dispatched_at = clock_timestamp() WHERE id = ANY(%s::uuid[])"
# A delivery to a disabled subscription has failed, and may be redelivered.
ENTER = """
INSERT INTO triggers_eventdelivery (id, event_id, subscription_id, name, status, reason, due_at, ended_at)
SELECT wanted.id, wanted.event_id, subscription.id, subscription.slug,
  CASE WHEN enabled THEN 'pending' ELSE 'failed' END, CASE WHEN enabled THEN '' ELSE %s::text END,
  CASE WHEN enabled THEN clock_timestamp() END, CASE WHEN NOT enabled THEN clock_timestamp() END
FROM unnest(%s::uuid[], %s::uuid[], %s::text[]) AS wanted(id, event_id, slug)
JOIN triggers_subscription subscription ON subscription.slug = wanted.slug
JOIN triggers_event event ON event.id = wanted.event_id
ON CONFLICT (event_id, subscription_id) DO NOTHING
"""
KNOWN = "SELECT slug FROM triggers_subscription WHERE slug = ANY(%s::text[])"


def record_events(ends: Sequence[End]) -> None:
    events = {uuid7(): end for end in ends if _wants_event(end) or _subscriptions(end)}
    if not events:
        return
    accept_own([_event(end) for end in events.values()], list(events))
    for_subscriptions_alone = [id for id, end in events.items() if not _wants_event(end)]
    if for_subscriptions_alone:
        execute(DISPATCHED, [for_subscriptions_alone])
    _enter(events)


def _enter(events: Mapping[UUID, End]) -> None:
    rows = [(new_id(), id, slug) for id, end in events.items() for slug in _subscriptions(end)]
    if not rows:
        return
    execute(ENTER, [DISABLED, *(list(column) for column in zip(*rows, strict=True))])
    slugs = {slug for _, _, slug in rows}
    for slug in sorted(slugs - set(fetch_column(KNOWN, [sorted(slugs)]))):
        _report_unknown(slug, next(end for end in events.values() if slug in _subscriptions(end)))


def _report_unknown(slug: str, end: End) -> None:
    """A report that goes nowhere must not fail silently; the same text is sent once a day."""
    log.warning("report.unknown_subscription", subscription=slug, agent=end.agent, trigger=end.trigger)
    Notification.objects.create(
        sender=end.agent or end.name,
        text=f"{end.name} reports to the subscription {slug!r}, which does not exist. Create it, or change the reports.",
        topic=f"report:{slug}",
    )


def _event(end: End) -> Incoming:
    return Incoming(
        source_id=builtin_source("run"),
        ce_source=f"agents/{end.agent}",
        ce_id=f"{end.run}:finished:{end.epoch}" if end.run else f"{end.event}:not-started",
        type=FINISHED,
        subject=end.name,
        data=_data(end),
        root_id=end.root,
        cause_event_id=end.event,
        cause_run_id=end.run,
        depth=end.depth + 1,
        chain=[*end.chain, end.name],
        is_tainted=end.is_tainted,
    )


def _data(end: End) -> dict[str, Any]:
    return {
        "run": str(end.run) if end.run else None,
        "agent": end.agent,
        "trigger": end.trigger,
        "status": end.status,
        "text": end.text,
        "reason": end.reason,
        "error": end.error,
        "attempt": end.attempt,
        "result": end.result,
        "started_at": end.started_at and end.started_at.isoformat(),
        "finished_at": end.finished_at and end.finished_at.isoformat(),
    }


def _wants_event(end: End) -> bool:
    return any(report.event for report in end.reports)


def _subscriptions(end: End) -> list[str]:
    return list(dict.fromkeys(slug for report in end.reports for slug in report.webhooks))
