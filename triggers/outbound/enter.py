"""Write the deliveries of a batch, in the transaction that dispatches its events."""

from collections.abc import Sequence

from runs.db.sql import execute
from runs.models.delivery import new_id
from triggers.matching.match import Matched

# A subscription that was disabled or deleted since the match gets nothing.
ENTER = """
INSERT INTO triggers_eventdelivery (id, event_id, subscription_id, name, status, reason, due_at, ended_at)
SELECT wanted.id, wanted.event_id, subscription.id, subscription.slug,
  CASE WHEN wanted.error = '' THEN 'pending' ELSE 'error' END, wanted.error,
  CASE WHEN wanted.error = '' THEN clock_timestamp() END, CASE WHEN wanted.error <> '' THEN clock_timestamp() END
FROM unnest(%s::uuid[], %s::uuid[], %s::uuid[], %s::text[]) AS wanted(id, event_id, subscription_id, error)
JOIN triggers_subscription subscription ON subscription.id = wanted.subscription_id AND subscription.enabled
ON CONFLICT (event_id, subscription_id) DO NOTHING
"""


def enter(dispatched: Sequence[Matched]) -> None:
    rows = [(new_id(), one.item.event_id, out.subscription_id, out.error) for one in dispatched for out in one.outgoing]
    if rows:
        execute(ENTER, [list(column) for column in zip(*rows, strict=True)])
