"""Debounce and batch: events that wait in a window to become one run. Only the dispatcher reads and writes windows, under its
lock."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from runs.db.sql import execute, execute_many, fetch, fetch_as
from runs.enqueue import Chain, merged
from runs.transitions.reports import Asked
from triggers.matching.flow_control import Intake
from triggers.matching.matches import Group

READ = """
SELECT id, trigger_id, key, replay_id, event_ids, root_id, depth, chain, is_tainted, input, reports, opened_at, due_at
FROM triggers_window
WHERE (trigger_id, key, replay_id) IN (SELECT * FROM unnest(%s::uuid[], %s::text[], %s::uuid[]))
"""
DUE = """
SELECT trigger_id, key, replay_id, cardinality(event_ids) FROM triggers_window WHERE due_at <= %s::timestamptz
  AND (trigger_id, key, replay_id) NOT IN (SELECT * FROM unnest(%s::uuid[], %s::text[], %s::uuid[]))
ORDER BY due_at LIMIT %s::int
"""
WRITE = """
INSERT INTO triggers_window (trigger_id, key, replay_id, event_ids, root_id, depth, chain, is_tainted, input, opened_at, due_at,
                             closes_at, reports)
VALUES (%s::uuid, %s::text, %s::uuid, %s::uuid[], %s::uuid, %s::smallint, %s::text[], %s::boolean, %s::jsonb,
        %s::timestamptz, %s::timestamptz, %s::timestamptz, %s::jsonb)
ON CONFLICT (trigger_id, key, replay_id) DO UPDATE SET
  event_ids = excluded.event_ids, root_id = excluded.root_id, depth = excluded.depth, chain = excluded.chain,
  is_tainted = excluded.is_tainted,
  input = excluded.input, opened_at = excluded.opened_at, due_at = excluded.due_at, closes_at = excluded.closes_at,
  reports = excluded.reports
"""
DELETE = "DELETE FROM triggers_window WHERE id = ANY(%s::bigint[])"


@dataclass(kw_only=True)
class OpenWindow:
    """A window in memory; `id` None: not in the database yet."""

    id: int | None
    trigger_id: UUID
    key: str
    replay_id: UUID
    event_ids: list[UUID]
    root_id: UUID
    depth: int
    chain: Chain
    is_tainted: bool
    input: Any
    opened_at: datetime
    due_at: datetime
    closes_at: datetime | None = None
    reports: Asked = ()
    has_changed: bool = False

    @property
    def group(self) -> Group:
        return self.trigger_id, self.key, self.replay_id

    def is_over(self, intake: Intake, now: datetime) -> bool:
        return self.due_at <= now or len(self.event_ids) >= intake.most

    def take(
        self,
        event_id: UUID,
        input: Any,
        depth: int,
        chain: Chain,
        is_tainted: bool,
        reports: Asked,
        intake: Intake,
        now: datetime,
    ) -> None:
        """Add an event. Each event restarts a debounce, up to `max_wait` in total."""
        if event_id not in self.event_ids:
            self.event_ids.append(event_id)
        self.input, self.depth, self.chain = input, max(self.depth, depth), merged(self.chain, chain)
        self.is_tainted |= is_tainted
        self.reports = [*self.reports, *(one for one in reports if one not in self.reports)]
        self.closes_at = self.opened_at + intake.max_wait
        self.due_at = min(now + intake.debounce, self.closes_at) if intake.debounce else self.closes_at
        self.has_changed = True


def read(groups: Iterable[Group]) -> dict[Group, OpenWindow]:
    wanted = sorted(set(groups))
    if not wanted:
        return {}
    return {window.group: window for window in fetch_as(_window, READ, _columns(wanted))}


def due(now: datetime, most: int, but: Sequence[Group] = ()) -> list[Group]:
    """The groups whose windows are over, except `but`, longest first: with up to `most` events in total, but at least one
    group."""
    groups: list[Group] = []
    room = most
    for trigger_id, key, replay_id, events in fetch(DUE, [now, *_columns(but), most]):
        if groups and events > room:
            break
        groups.append((trigger_id, key, replay_id))
        room -= events
    return groups


def write(windows: Iterable[OpenWindow], closed: Iterable[OpenWindow]) -> None:
    """Delete closed windows first, because a new window of the same group may have been opened since."""
    gone = [window.id for window in closed if window.id is not None]
    if gone:
        execute(DELETE, [gone])
    changed = [
        (
            window.trigger_id, window.key, window.replay_id, window.event_ids, window.root_id, window.depth, list(window.chain),
            window.is_tainted, None if window.input is None else Jsonb(window.input), window.opened_at, window.due_at, window.closes_at,
            Jsonb(window.reports) if window.reports else None,
        )
        for window in windows
        if window.has_changed
    ]  # fmt: skip
    if changed:
        execute_many(WRITE, changed)


def _columns(groups: Sequence[Group]) -> list[list[Any]]:
    return [[group[place] for group in groups] for place in range(3)]


def _window(*, input: str | None, reports: str | None, **columns: Any) -> OpenWindow:
    read = {name: json.loads(text) for name, text in {"input": input, "reports": reports}.items() if text is not None}
    return OpenWindow(**{"input": None, **read}, **columns)
