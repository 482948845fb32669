"""Events that a trigger matched, but that have neither a run nor a decision: `verify` expects none."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any
from uuid import UUID

from agents.kernel.ids import run_id
from runs.db.sql import fetch, fetch_as
from triggers.dispatch.rules import rule_of
from triggers.matching.index import Index
from triggers.matching.match import match_items
from triggers.matching.pending import NIL_REPLAY, Item
from triggers.models import Trigger

EVENTS = 500  # per batch

# Only events that were dispatched under today's triggers: after a trigger was created or last changed.
EVENTS_AFTER = """
SELECT event.id AS event_id, source.slug AS source, event.type, event.subject, coalesce(event.time, event.received_at) AS time,
       event.target_id, event.root_id, event.depth, event.dispatched_at
FROM triggers_event event JOIN triggers_source source ON source.id = event.source_id
WHERE event.id > %s::uuid AND event.dispatched_at IS NOT NULL AND event.payload_removed_at IS NULL
ORDER BY event.id LIMIT %s::int
"""
CHANGED = """
SELECT trigger.id, greatest(trigger.created_at, max(entry.at)) FROM triggers_trigger trigger
LEFT JOIN runs_auditentry entry ON entry.kind = 'trigger' AND entry.object_id = trigger.id::text
GROUP BY trigger.id
"""
UNEXPLAINED = """
SELECT wanted.event_id, wanted.trigger_id
FROM unnest(%s::uuid[], %s::uuid[], %s::uuid[], %s::text[]) AS wanted(event_id, trigger_id, run_id, consumer)
WHERE NOT EXISTS (SELECT FROM runs_run run WHERE run.id = wanted.run_id)
  AND NOT EXISTS (SELECT FROM triggers_decision decision
                  WHERE decision.event_id = wanted.event_id AND decision.trigger_id = wanted.trigger_id)
  AND NOT EXISTS (SELECT FROM runs_processedevent ledger
                  WHERE ledger.event_id = wanted.event_id AND ledger.consumer = wanted.consumer)
"""


def unexplained(first: UUID, most: int) -> list[dict[str, Any]]:
    """At most this many of the events from this id on."""
    triggers = list(Trigger.objects.all())
    index = Index(rule_of(trigger) for trigger in triggers)
    slugs = {trigger.id: trigger.slug for trigger in triggers}
    changed = dict(fetch(CHANGED))
    found: list[dict[str, Any]] = []
    for batch in _dispatched(first):
        wanted = [
            (item.event_id, trigger)
            for item, triggers_of_it in ((one.item, _wanting(one)) for one in match_items(list(batch), index))
            for trigger in triggers_of_it
            if batch[item] > changed.get(trigger, batch[item])
        ]
        columns = [
            [event for event, _ in wanted],
            [trigger for _, trigger in wanted],
            [run_id(trigger, event, NIL_REPLAY) for event, trigger in wanted],
            [slugs[trigger] for _, trigger in wanted],
        ]
        found += [{"event": event, "trigger": slugs[trigger]} for event, trigger in fetch(UNEXPLAINED, columns)]
        if len(found) >= most:
            break
    return found[:most]


def _wanting(matched: Any) -> list[UUID]:
    return [match.rule.id for match in matched.matches] + [refusal.trigger_id for refusal in matched.refusals]


def _dispatched(first: UUID) -> Iterator[dict[Item, datetime]]:
    """Batches of events with the time of dispatch of each."""
    after = UUID(int=max(first.int - 1, 0))
    while found := fetch_as(_dispatched_item, EVENTS_AFTER, [after, EVENTS]):
        yield dict(found)
        after = found[-1][0].event_id


def _dispatched_item(*, dispatched_at: datetime, **columns: Any) -> tuple[Item, datetime]:
    return Item(**columns), dispatched_at
