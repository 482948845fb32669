"""Claim due schedules: lock each with its task, then read both."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from runs.db.sql import fetch, fetch_as
from triggers.schedules.definition import ROWS, STATE, Definition
from triggers.schedules.plans import ran_elsewhere

CLAIM = """
SELECT schedule.id FROM triggers_schedule schedule JOIN django_celery_beat_periodictask task ON task.id = schedule.task_id
WHERE {which} ORDER BY {order} LIMIT %s::int FOR UPDATE SKIP LOCKED
"""
STALE = "schedule.stale"
DUE = "schedule.due_at <= %s::timestamptz AND NOT schedule.stale"
THIS = " AND schedule.id = %s::bigint"
LOAD = f"""
SELECT schedule.id, schedule.task_id, periodic.name, periodic.task,
       schedule.trigger_id, schedule.data, {STATE} AS definition, schedule.next_fire_at,
       schedule.accounted_until, schedule.last_fire_at, schedule.fired_at, schedule.fires, schedule.spec, schedule.anchor_at,
       schedule.created_at, schedule.edited_at, schedule.rest, periodic.last_run_at
FROM {ROWS} WHERE schedule.id = ANY((SELECT %s::bigint[])::bigint[]) ORDER BY schedule.id
"""  # noqa: S608  (our own parts)


@dataclass(frozen=True, kw_only=True)
class Claimed:
    """A schedule with its task, locked and read."""

    id: int
    task_id: int
    name: str
    task: str
    trigger_id: UUID | None
    data: Any
    definition: Definition
    next_fire_at: datetime | None
    accounted_until: datetime | None
    last_fire_at: datetime | None
    fired_at: datetime | None
    fires: int
    spec: str
    anchor_at: datetime | None
    created_at: datetime
    edited_at: datetime
    rest: str
    last_run_at: datetime | None
    past: Sequence[tuple[Definition, datetime]] = ()  # before edits that are not accounted for, each until when

    @property
    def ran_elsewhere(self) -> datetime | None:
        """When another scheduler fired it last, if it has since we did."""
        return ran_elsewhere(self.last_run_at, self.fired_at)


def claim_ids(which: str, parameters: list[int | datetime], order: str, limit: int) -> list[int]:
    return [id for (id,) in fetch(CLAIM.format(which=which, order=order), [*parameters, limit])]


def load_claimed(ids: Sequence[int]) -> list[Claimed]:
    if not ids:
        return []
    return fetch_as(_claimed, LOAD, [list(ids)])


def _claimed(*, id: int, data: str | None, definition: str, **columns: Any) -> Claimed:
    return Claimed(
        id=id,
        data=None if data is None else json.loads(data),
        definition=Definition(id, json.loads(definition)),
        **columns,
    )
