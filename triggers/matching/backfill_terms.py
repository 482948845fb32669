"""Backfilled events use the backfill's own key, limit and priority, and bypass the trigger's rate and windows. A replay of
such an event is not part of the backfill."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from uuid import UUID

from runs.db.sql import fetch
from triggers.matching.flow_control import Intake
from triggers.matching.index import Rule
from triggers.models import Trigger

ARE_UNDERWAY = "EXISTS (SELECT FROM triggers_backfilltick WHERE outcome = 'open')"
# Of several backfills of one nominal time, only one has fired it, so only one has an open tick.
TERMS = """
SELECT tick.event_id, backfill.id, backfill.at_once, backfill.priority
FROM triggers_backfilltick tick JOIN triggers_backfill backfill ON backfill.id = tick.backfill_id
WHERE tick.event_id = ANY(%s::uuid[]) AND tick.outcome = 'open'
"""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The limit and priority of a backfill's runs."""

    backfill_id: UUID
    at_once: int
    priority: int

    def applied_to(self, rule: Rule) -> Rule:
        """The rule for these events; `group_of` turns its key into that of `key_of`."""
        overlap = Trigger.Overlap.QUEUE
        return replace(
            rule,
            key=f'"backfill:{self.backfill_id}"',
            key_limit=self.at_once,
            overlap=overlap,
            policy=replace(rule.policy, priority=self.priority, overlap=overlap),
            intake=Intake(),
        )


def terms_of(event_ids: Collection[UUID]) -> dict[UUID, Terms]:
    """The terms of the events that a backfill has fired."""
    if not event_ids:
        return {}
    return {
        event_id: Terms(backfill_id=backfill_id, at_once=at_once, priority=priority)
        for event_id, backfill_id, at_once, priority in fetch(TERMS, [list(event_ids)])
    }


def key_of(trigger_id: UUID, backfill_id: UUID) -> str:
    """The concurrency key of a backfill's runs."""
    return f"{trigger_id}:backfill:{backfill_id}"
