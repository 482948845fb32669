"""What caused a run or an event, and what came of it.

Up: a run ← the events that woke it ← the runs that emitted them; a child ← its parent; a fork ← the run it was made of.
Down: a run → the events it emitted → the runs these started or woke; → its children; → its forks. Each direction is one
query, level by level: a large tree shows the nearest nodes first, and failed runs before others.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from config.console.runs.children import name_of, spawned_by
from runs.actions.event_runs import beside
from runs.db.sql import fetch_as
from runs.models import Run
from triggers.models import Event

RUN, EVENT = "run", "event"
SPAWNED = "spawned"
LEVELS_UP = 12  # an event and the run that emitted it are two
LEVELS_DOWN = 6
CAUSES = 3  # events of one run to follow up
BREADTH = 10  # effects of one kind shown per node
COUNTED = 1_000  # count further effects up to this number
NODES = 150  # of one direction

UP = """
WITH RECURSIVE up (level, kind, id, relation, of, others) AS (
  SELECT 0, %(kind)s::text, %(id)s::uuid, '', NULL::uuid, 0::bigint
  UNION ALL
  SELECT up.level + 1, cause.kind, cause.id, cause.relation, up.id, cause.others
  FROM up CROSS JOIN LATERAL (
    SELECT 'event' AS kind, event.id, 'woken by' AS relation, greatest(cardinality(run.event_ids) - %(causes)s, 0)::bigint AS others
    FROM runs_run run, unnest(run.event_ids[1:%(causes)s]) AS event(id)
    WHERE up.kind = 'run' AND run.id = up.id
    UNION ALL
    SELECT 'run', run.parent_id, 'child of', 0 FROM runs_run run
    WHERE up.kind = 'run' AND run.id = up.id AND run.parent_id IS NOT NULL
    UNION ALL
    SELECT 'run', run.forked_from_id, 'fork of', 0 FROM runs_run run
    WHERE up.kind = 'run' AND run.id = up.id AND run.forked_from_id IS NOT NULL
    UNION ALL
    SELECT 'run', event.cause_run_id, 'emitted by', 0 FROM triggers_event event
    WHERE up.kind = 'event' AND event.id = up.id AND event.cause_run_id IS NOT NULL
  ) cause WHERE up.level < %(levels)s
) SELECT level, kind, id, relation, of, others FROM up LIMIT %(nodes)s
"""
DOWN = """
WITH RECURSIVE down (level, kind, id, relation, of, others) AS (
  SELECT 0, %(kind)s::text, %(id)s::uuid, '', NULL::uuid, 0::bigint
  UNION ALL
  SELECT down.level + 1, effect.kind, effect.id, effect.relation, down.id, effect.others
  FROM down CROSS JOIN LATERAL (
    SELECT kind, id, relation, greatest(total - %(breadth)s, 0) AS others FROM (
     SELECT found.*, count(*) OVER (PARTITION BY relation) AS total,
            row_number() OVER (PARTITION BY relation ORDER BY NOT has_failed, id) AS place FROM (
      (SELECT 'event' AS kind, event.id, 'emitted' AS relation, false AS has_failed FROM triggers_event event
       WHERE down.kind = 'run' AND event.cause_run_id = down.id LIMIT %(counted)s)
      UNION ALL
      (SELECT 'run', run.id, 'spawned', run.status = 'failed' FROM runs_run run
       WHERE down.kind = 'run' AND run.parent_id = down.id LIMIT %(counted)s)
      UNION ALL
      (SELECT 'run', run.id, 'forked to', run.status = 'failed' FROM runs_run run
       WHERE down.kind = 'run' AND run.forked_from_id = down.id LIMIT %(counted)s)
      UNION ALL
      (SELECT 'run', run.id, 'started', run.status = 'failed' FROM runs_run run
       WHERE down.kind = 'event' AND run.event_ids @> ARRAY[down.id] AND run.forked_from_id IS NULL
         AND run.id {of_the_same_time} LIMIT %(counted)s)
      UNION ALL
      (SELECT 'run', run.id, 'joined', run.status = 'failed' FROM runs_run run
       WHERE down.kind = 'event' AND cardinality(run.event_ids) > 1 AND run.event_ids @> ARRAY[down.id]
         AND run.forked_from_id IS NULL
         AND NOT run.id {of_the_same_time} LIMIT %(counted)s)
      UNION ALL
      (SELECT 'run', wait.run_id, 'woke', false FROM runs_wait wait
       WHERE down.kind = 'event' AND wait.event_id = down.id LIMIT %(counted)s)
     ) found
    ) counted WHERE place <= %(breadth)s ORDER BY relation, place
  ) effect WHERE down.level < %(levels)s
) SELECT level, kind, id, relation, of, others FROM down LIMIT %(nodes)s
""".replace("{of_the_same_time}", beside("down.id"))


@dataclass(frozen=True, kw_only=True)
class Node:
    """A run or event, its relation to its parent node, and the number of hidden siblings with the same relation."""

    level: int
    kind: str
    id: UUID
    relation: str
    of: UUID | None
    others: int


@dataclass(frozen=True, kw_only=True)
class Named:
    """What a node is called: a run by its agent or the key under which it was spawned, an event by its type."""

    name: str
    agent: str = ""
    state: str = ""
    subject: str = ""


def causes_of(kind: str, id: UUID) -> list[Node]:
    return _read(UP, kind, id, levels=LEVELS_UP)


def effects_of(kind: str, id: UUID) -> list[Node]:
    return _read(DOWN, kind, id, levels=LEVELS_DOWN)


def _read(query: str, kind: str, id: UUID, *, levels: int) -> list[Node]:
    limits = {"levels": levels, "causes": CAUSES, "breadth": BREADTH, "counted": COUNTED, "nodes": NODES}
    return [node for node in fetch_as(Node, query, {"kind": kind, "id": id, **limits}) if node.level]


def names_of(nodes: Iterable[Node]) -> dict[UUID, Named]:
    """By id; one that is missing has been deleted."""
    found = list(nodes)
    wanted = {kind: {node.id for node in found if node.kind == kind} for kind in (RUN, EVENT)}
    runs = Run.objects.filter(pk__in=wanted[RUN]).values_list("id", "agent", "status")
    parents = {node.of for node in found if node.relation == SPAWNED and node.of}
    spawned = spawned_by(parents) if parents else {}
    events = Event.objects.filter(pk__in=wanted[EVENT]).values_list("id", "type", "subject")
    return {
        **{id: Named(name=name_of(spawned.get(id, agent)), agent=agent, state=state) for id, agent, state in runs},
        **{id: Named(name=type, subject=subject) for id, type, subject in events},
    }
