"""Runs that hold copies of another run's input or output. A parent reads the results of its children; a fork begins with the journal
of its origin; children get their input from their parent."""

from collections.abc import Iterable
from uuid import UUID

from runs.db.sql import fetch

# OFFSET 0 makes the planner look up each run in the indexes, instead of joining whole tables.
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
    """For each run that has any: the runs that may still read its results: its parent, its forks, and theirs in turn."""
    return _kin(READERS, run_ids)


def heirs(run_ids: Iterable[UUID]) -> Kin:
    """For each run that has any: the runs that began with its data: its children, its forks, and theirs in turn."""
    return _kin(HEIRS, run_ids)


def _kin(statement: str, run_ids: Iterable[UUID]) -> Kin:
    found: Kin = {}
    for run, kin in fetch(statement, [list(run_ids)]):
        found.setdefault(run, set()).add(kin)
    return found
