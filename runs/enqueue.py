"""Insert runs into the queue; a run whose id exists is left alone."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from runs import keys
from runs.db.nudge import nudge_dispatcher
from runs.db.ready_runs import FLOOR, IS_READY, LAST, ORDER
from runs.db.sql import Query, array_of, execute, execute_many, fetch_as
from runs.models.policy import Policy

EVENTS_PER_RUN = 1000  # most events of a run, whose row is rewritten for each
# The causal chain: the slugs of the triggers (for runs without one, the agents) whose runs led to an event or a run.
Chain = Sequence[str]


def merged(one: Chain, other: Chain) -> list[str]:
    """The chain of a run with two causes: the longer chain, preceded by the slugs that only the other one has."""
    longer, shorter = (one, other) if len(one) >= len(other) else (other, one)
    return [*dict.fromkeys(slug for slug in shorter if slug not in longer), *longer]


def in_words(chain: Chain) -> str:
    """A causal chain as text, such as "orders → digest → orders"."""
    return " → ".join(chain)


@dataclass(kw_only=True)
class NewRun:
    """A run to insert. With a key it is ready if it has a slot, else blocked behind the key; with `start_at` it is due then."""

    id: UUID
    agent: str
    trigger: str
    trigger_id: UUID | None
    event_ids: list[UUID]
    policy: Policy
    root_id: UUID
    replay_id: UUID
    depth: int = 0
    chain: Chain = ()
    input: Any = None
    has_input: bool = False
    key: str | None = None
    key_limit: int = 1
    slot: int | None = None
    start_at: datetime | None = None
    parent_id: UUID | None = None
    forked_from_id: UUID | None = None
    is_tainted: bool = False

    @property
    def is_ready(self) -> bool:
        return self.start_at is None and (self.key is None or self.slot is not None)

    @property
    def room(self) -> int:
        """How many more events may join the run."""
        return EVENTS_PER_RUN - len(self.event_ids)

    def take_along(
        self,
        event_ids: Sequence[UUID],
        input: Any,
        has_input: bool,
        depth: int,
        chain: Chain,
        is_tainted: bool,
        reports: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.event_ids += event_ids
        self.input, self.has_input = input, has_input
        self.depth, self.chain = max(self.depth, depth), merged(self.chain, chain)
        self.is_tainted |= is_tainted
        self.policy = self.policy.reporting(reports)


@dataclass(kw_only=True)
class UnstartedRun:
    """A queued run that no worker has begun, locked against claims until the transaction ends; events may join it."""

    id: UUID
    room: int
    joined: list[UUID] = field(default_factory=list)
    input: Any = None
    has_input: bool = False
    depth: int = 0
    chain: Chain = ()
    is_tainted: bool = False
    reports: list[Mapping[str, Any]] = field(default_factory=list)

    def take_along(
        self,
        event_ids: Sequence[UUID],
        input: Any,
        has_input: bool,
        depth: int,
        chain: Chain,
        is_tainted: bool,
        reports: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        self.joined += event_ids
        self.room -= len(event_ids)
        self.input, self.has_input = input, has_input
        self.depth, self.chain = max(self.depth, depth), merged(self.chain, chain)
        self.is_tainted |= is_tainted
        self.reports += reports


# One statement for all runs: PostgreSQL prepares a dozen indexes and constraints once, instead of for every run.
#
# A run's turn is one more than the turn of the previous run of its trigger, and at least the floor (runs/db/ready_runs.py). So triggers
# with a backlog alternate, one run each, and the first run of a trigger without a backlog comes next. The newest runs of a trigger
# are found by their ids, which are ordered by time to the millisecond, so the query reads several. A run that is blocked behind
# its key gets its turn with its place (keys.PLACED).
INSERT = """
WITH given AS MATERIALIZED (
  SELECT * FROM unnest(%s::uuid[], %s::text[], %s::text[], %s::text[], %s::uuid[], %s::text[], %s::text[], %s::text[], %s::smallint[],
                       %s::uuid[], %s::uuid[], %s::smallint[], %s::text[], %s::boolean[], %s::timestamptz[], %s::text[], %s::smallint[],
                       %s::smallint[], %s::uuid[], %s::uuid[], %s::boolean[]) WITH ORDINALITY
    AS new (id, queue, agent, trigger, trigger_id, event_ids, input, policy, priority, replay_id, root_id, depth, chain, is_ready,
            due_at, key, key_limit, slot, parent_id, forked_from_id, is_tainted, position)
), floor AS MATERIALIZED (
  SELECT asked.queue, asked.priority, floor.place
  FROM (SELECT DISTINCT queue, priority FROM given WHERE trigger <> '') asked CROSS JOIN LATERAL ({floor}) floor
), last AS MATERIALIZED (
  SELECT queue, priority, trigger, greatest(floor.place, newest.place + 1) AS turn
  FROM (SELECT DISTINCT queue, priority, trigger FROM given WHERE trigger <> '') asked JOIN floor USING (queue, priority)
  CROSS JOIN LATERAL (
    SELECT max(place) FILTER (WHERE (late.queue, late.priority) = (asked.queue, asked.priority)) AS place FROM (
      (SELECT run.queue, run.priority, run.turn AS place FROM runs_run run WHERE run.trigger = asked.trigger
       ORDER BY run.id DESC LIMIT 10)
      UNION ALL
      SELECT asked.queue, asked.priority, ({last})) late) newest
), new AS (
  SELECT given.*, CASE WHEN NOT is_blocked THEN last.turn - 1 + row_number() OVER (
    PARTITION BY given.queue, given.priority, given.trigger, is_blocked ORDER BY given.position) END AS turn
  FROM given CROSS JOIN LATERAL (SELECT NOT is_ready AND due_at IS NULL AS is_blocked) state
    LEFT JOIN last USING (queue, priority, trigger)
)
INSERT INTO runs_run (id, queue, agent, version, trigger, trigger_id, event_ids, input, policy, priority, replay_id, root_id, depth,
                      chain, status, status_reason, ready_at, due_at, attempt, epoch, key, key_limit, slot, error, parent_id,
                      forked_from_id, is_tainted, turn)
SELECT id, queue, agent, '', trigger, trigger_id, event_ids::uuid[], input::jsonb, policy::jsonb, priority, replay_id, root_id, depth,
       chain::text[], 'queued', '', CASE WHEN is_ready THEN clock_timestamp() END, due_at, 0, 0, key, key_limit, slot, '', parent_id,
       forked_from_id, is_tainted, turn
FROM new ORDER BY position
ON CONFLICT (id) DO NOTHING
"""
INSERT = INSERT.replace("{floor}", FLOOR.replace("{of}", "asked").replace("{since}", "0")).replace(
    "{last}", LAST.replace("{of}", "asked")
)
# For few runs planning would take longer than execution: with arrays in a sub-SELECT the plan is made once, for any number. For many it
# would be the wrong one.
INSERT_FEW = re.sub(r"%s::\w+\[\]", r"(SELECT \g<0>)", INSERT)
FEW = 20
# A run that is ready while no other one of its queue is (IS_FREE) comes next: its turn is its `seq`, as above. For one run, INSERT takes
# longer to begin than to execute.
INSERT_FIRST = """
INSERT INTO runs_run (id, queue, agent, version, trigger, trigger_id, event_ids, input, policy, priority, replay_id, root_id, depth,
                      chain, status, status_reason, ready_at, due_at, attempt, epoch, key, key_limit, slot, error, parent_id,
                      forked_from_id, is_tainted, seq, turn)
SELECT %s::uuid, %s::text, %s::text, '', %s::text, %s::uuid, %s::text::uuid[], %s::text::jsonb, %s::text::jsonb, %s::smallint, %s::uuid,
       %s::uuid, %s::smallint, %s::text::text[], 'queued', '', CASE WHEN %s::boolean THEN clock_timestamp() END, %s::timestamptz, 0, 0,
       %s::text, %s::smallint, %s::smallint, '', %s::uuid, %s::uuid, %s::boolean, given.seq, given.seq
FROM (SELECT nextval('runs_run_seq') AS seq OFFSET 0) given
ON CONFLICT (id) DO NOTHING
"""
# Ordered like the index, so that no statistics lead the planner to all runs.
IS_FREE = f"""
(SELECT run.seq FROM runs_run run WHERE {IS_READY} AND run.queue = {{queue}} ORDER BY run.agent, {ORDER} LIMIT 1) IS NULL
"""  # noqa: S608  (our own parts)
# The newest run of each key and replay. A run that a worker is claiming counts as begun.
UNSTARTED = """
SELECT wanted.key, wanted.replay_id, run.id, %(most)s::int - cardinality(run.event_ids) AS room, run.chain
FROM unnest(%(keys)s::text[], %(replays)s::uuid[]) AS wanted(key, replay_id)
CROSS JOIN LATERAL (
  SELECT * FROM ({of_placed}) placed UNION ALL SELECT * FROM ({of_blocked}) blocked UNION ALL SELECT * FROM ({of_due}) due
  ORDER BY seq DESC LIMIT 1) run
"""
OF_SORT = """
  SELECT id, event_ids, chain, seq FROM runs_run
  WHERE key = wanted.key AND replay_id = wanted.replay_id AND status = 'queued' AND started_at IS NULL AND {sort}
  ORDER BY seq DESC LIMIT 1 FOR UPDATE SKIP LOCKED
"""
for name, sort in {"placed": "slot IS NOT NULL", "blocked": keys.BLOCKED, "due": keys.DUE}.items():
    UNSTARTED = UNSTARTED.replace(f"{{of_{name}}}", OF_SORT.replace("{sort}", sort))
# An event that is dispatched twice joins once.
JOIN = """
UPDATE runs_run SET
  event_ids = event_ids || ARRAY(
    SELECT id FROM unnest(%s::uuid[]) WITH ORDINALITY AS joined(id, position) WHERE id <> ALL (event_ids) ORDER BY position),
  input = %s::jsonb, depth = greatest(depth, %s::smallint), chain = %s::text[], is_tainted = is_tainted OR %s::boolean,
  policy = CASE WHEN new.reports IS NULL THEN policy
    ELSE policy || jsonb_build_object('reports', coalesce(policy->'reports', '[]') || new.reports) END
FROM (SELECT %s::jsonb AS reports) new
WHERE id = %s::uuid
"""


def enqueue(runs: Sequence[NewRun]) -> None:
    """Insert in the given order, in the caller's transaction, and wake the dispatcher to ring for the runs."""
    if runs:
        execute(*insertion(runs))
        nudge_dispatcher()


def insertion(runs: Sequence[NewRun], free_queue: str | None = None) -> Query:
    """The statement that inserts the runs in the given order. `free_queue`: one in which no run was ready."""
    policies = {id(run.policy): run.policy for run in runs}  # a batch has few
    dumped = {id(policy): json.dumps(policy.dump()) for policy in policies.values()}
    rows = [
        (
            run.id, run.policy.queue, run.agent, run.trigger, run.trigger_id, f"{{{','.join(map(str, run.event_ids))}}}",
            json.dumps(run.input) if run.has_input else None, dumped[id(run.policy)], run.policy.priority,
            run.replay_id, run.root_id, run.depth, text_array(run.chain), run.is_ready, run.start_at, run.key, run.key_limit, run.slot,
            run.parent_id, run.forked_from_id, run.is_tainted,
        )
        for run in runs
    ]  # fmt: skip
    if len(runs) == 1 and runs[0].is_ready and runs[0].policy.queue == free_queue:
        return INSERT_FIRST, rows[0]
    return INSERT_FEW if len(rows) <= FEW else INSERT, [array_of(values) for values in zip(*rows, strict=True)]


def text_array(texts: Sequence[str]) -> str:
    """A PostgreSQL array as text, because unnest() flattens a list of lists."""
    return "{" + ",".join(json.dumps(text, ensure_ascii=False) for text in texts) + "}"


def unstarted(wanted: Iterable[tuple[str, UUID]]) -> dict[tuple[str, UUID], UnstartedRun]:
    """The newest run that has not begun, by (key, replay id); no worker can claim it before the transaction ends."""
    pairs = sorted(set(wanted))
    if not pairs:
        return {}
    parameters = {"keys": [key for key, _ in pairs], "replays": [replay for _, replay in pairs], "most": EVENTS_PER_RUN}
    return dict(fetch_as(_unstarted, UNSTARTED, parameters))


def _unstarted(*, key: str, replay_id: UUID, **columns: Any) -> tuple[tuple[str, UUID], UnstartedRun]:
    return (key, replay_id), UnstartedRun(**columns)


def join(runs: Iterable[UnstartedRun]) -> None:
    """Write the events that have joined runs, and wake the dispatcher: an earlier ring may have found the runs locked."""
    rows = [
        (
            run.joined, Jsonb(run.input) if run.has_input else None, run.depth, list(run.chain), run.is_tainted,
            Jsonb(run.reports) if run.reports else None, run.id,
        )
        for run in runs
        if run.joined
    ]  # fmt: skip
    if rows:
        execute_many(JOIN, rows)
        nudge_dispatcher()
