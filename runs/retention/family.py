"""Which runs share in what a run was given and gave. A parent is given what its children gave; a fork begins with the
journal of the run it was forked from; children are given what their parent had."""

from collections.abc import Iterable
from uuid import UUID

from runs.db.sql import fetch

# OFFSET 0: each run is looked up in the indexes by itself, however the planner would rather join whole tables.
KIN = """
WITH RECURSIVE found (run, kin) AS (
  SELECT id, id FROM unnest(%s::uuid[]) AS id
  UNION
  SELECT found.run, next.id FROM found CROSS JOIN LATERAL ({next} OFFSET 0) next
)
SELECT run, kin FROM found WHERE kin <> run
"""
PARENT = "SELECT parent.id FROM runs_run run JOIN runs_run parent ON parent.id = run.parent_id WHERE run.id = found.kin"
CHILDREN = "SELECT id FROM runs_run WHERE parent_id = found.kin"
FORKS = "SELECT id FROM runs_run WHERE forked_from_id = found.kin"
READERS = KIN.format(next=f"{PARENT} UNION ALL {FORKS}")
HEIRS = KIN.format(next=f"{CHILDREN} UNION ALL {FORKS}")

Kin = dict[UUID, set[UUID]]


def readers(run_ids: Iterable[UUID]) -> Kin:
    """Of each run those who may still ask what it gave, if there are any: its parent, its forks, and theirs in turn."""
    return _kin(READERS, run_ids)


def heirs(run_ids: Iterable[UUID]) -> Kin:
    """Of each run those who began with something it had, if there are any: its children, its forks, and theirs in turn."""
    return _kin(HEIRS, run_ids)


def _kin(statement: str, run_ids: Iterable[UUID]) -> Kin:
    found: Kin = {}
    for run, kin in fetch(statement, [list(run_ids)]):
        found.setdefault(run, set()).add(kin)
    return found
