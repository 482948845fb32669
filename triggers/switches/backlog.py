"""Events that wait for dispatch. One of them may be the event that a switch waits for, so nothing opens before they are dispatched."""

from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from runs.db.sql import fetch
from triggers.switches.switches import Switches

MOST = 1_000  # events that are looked at one by one
WAITING = """
SELECT source.slug, event.type, event.received_at FROM (
  SELECT source_id, type, received_at FROM triggers_event WHERE dispatched_at IS NULL ORDER BY seq LIMIT %s::int) event
JOIN triggers_source source ON source.id = event.source_id
"""


@dataclass(frozen=True, kw_only=True)
class Backlog:
    """`before`: if more than MOST events wait, nothing that was due later may open; None: they are fewer. `heard`: when
    the first event that a rule may match arrived.
    """

    before: datetime | None = None
    heard: dict[UUID, datetime] = field(default_factory=dict)

    @classmethod
    def read(cls, switches: Switches) -> "Backlog":
        rows = fetch(WAITING, [MOST])
        if len(rows) == MOST:
            return cls(before=min(received_at for _, _, received_at in rows))
        first: dict[tuple[str, str], datetime] = {}
        for source, type, received_at in rows:
            first[source, type] = min(first.get((source, type), received_at), received_at)
        heard: dict[UUID, datetime] = {}
        for (source, type), received_at in first.items():
            for rule in switches.index.candidates(source, type):
                heard[rule.id] = min(heard.get(rule.id, received_at), received_at)
        return cls(heard=heard)

    def may_hide(self, rules: list[UUID], due_at: datetime) -> bool:
        """Whether these rules may match a waiting event that arrived until then."""
        if self.before is not None:
            return self.before <= due_at
        return any(self.heard[id] <= due_at for id in rules if id in self.heard)
