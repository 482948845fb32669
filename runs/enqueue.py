"""Insert runs into the queue; a run whose id is known is already there."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from runs.nudge import nudge_dispatcher
from runs.policy import Policy
from runs.sql import execute_many


@dataclass(frozen=True, kw_only=True)
class NewRun:
    """A run as admission decided it: with a key it has a slot and is ready, or none and is blocked behind the key."""

    id: UUID
    agent: str
    trigger: str
    trigger_id: UUID
    event_ids: Sequence[UUID]
    policy: Policy
    root_id: UUID
    replay_id: UUID
    depth: int = 0
    input: Any = None
    has_input: bool = False
    key: str | None = None
    slot: int | None = None
    parent_id: UUID | None = field(default=None)

    @property
    def is_ready(self) -> bool:
        return self.key is None or self.slot is not None


INSERT = """
INSERT INTO runs_run (id, queue, agent, version, trigger, trigger_id, event_ids, input, policy, priority, replay_id, root_id, depth,
                      status, status_reason, ready_at, attempt, epoch, key, key_limit, slot, error, parent_id)
VALUES (%s::uuid, %s::text, %s::text, '', %s::text, %s::uuid, %s::uuid[], %s::jsonb, %s::jsonb, %s::smallint, %s::uuid, %s::uuid,
        %s::smallint, 'queued', '', CASE WHEN %s::boolean THEN clock_timestamp() END, 0, 0, %s::text, 1, %s::smallint, '', %s::uuid)
ON CONFLICT (id) DO NOTHING
"""


def enqueue(runs: Sequence[NewRun]) -> None:
    """Insert in the given order, in the caller's transaction; the dispatcher is woken to ring for them."""
    if not runs:
        return
    execute_many(
        INSERT,
        [
            (
                run.id, run.policy.queue, run.agent, run.trigger, run.trigger_id, list(run.event_ids),
                Jsonb(run.input) if run.has_input else None, Jsonb(run.policy.dump()), run.policy.priority,
                run.replay_id, run.root_id, run.depth, run.is_ready, run.key, run.slot, run.parent_id,
            )
            for run in runs
        ],
    )  # fmt: skip
    nudge_dispatcher()
