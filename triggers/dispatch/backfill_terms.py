"""How the dispatcher treats the events of a backfill: by their trigger, but under a key, a limit and a priority of the
backfill's own, and past the trigger's rate and windows. A replay is no part of the backfill any more."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from uuid import UUID

from runs.db.sql import fetch
from triggers.dispatch.flow_control import Intake
from triggers.dispatch.index import Rule
from triggers.models import Trigger

ARE_UNDERWAY = "EXISTS (SELECT FROM triggers_backfilltick WHERE outcome = 'open')"
# Of several backfills of one nominal time, one has fired it; to the others it was there already.
TERMS = """
SELECT tick.event_id, backfill.id, backfill.at_once, backfill.priority
FROM triggers_backfilltick tick JOIN triggers_backfill backfill ON backfill.id = tick.backfill_id
WHERE tick.event_id = ANY(%s::uuid[]) AND tick.outcome = 'open'
"""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What a backfill says of how its events become runs."""

    backfill_id: UUID
    at_once: int
    priority: int

    def applied_to(self, rule: Rule) -> Rule:
        """The trigger as these events see it; `group_of` makes of its key what `key_of` says."""
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
    """Those of these events that a backfill has fired."""
    if not event_ids:
        return {}
    return {
        event_id: Terms(backfill_id=backfill_id, at_once=at_once, priority=priority)
        for event_id, backfill_id, at_once, priority in fetch(TERMS, [list(event_ids)])
    }


def key_of(trigger_id: UUID, backfill_id: UUID) -> str:
    """The concurrency key of a backfill's runs."""
    return f"{trigger_id}:backfill:{backfill_id}"
