"""Remove the errors of incidents, and keep that something failed, how often and when."""

from collections.abc import Sequence
from uuid import UUID

from runs.db.sql import execute, fetch_column

# Hashes go too: they would reveal one of few possible values. The class of the exception is part of the code.
REMOVE = """
UPDATE runs_incident SET error = '{error}', cause = split_part(cause, ':', 1), fingerprint = 'removed:' || id,
  acknowledged_note = '', muted_note = '' WHERE {which}
"""
# Those that these runs failed in, or looked at an item for.
OF_RUNS = """
SELECT incident_id FROM runs_coveredrun WHERE run_id = ANY(%(runs)s::uuid[])
UNION SELECT id FROM runs_incident WHERE first_run_id = ANY(%(runs)s::uuid[]) OR last_run_id = ANY(%(runs)s::uuid[])
"""


def remove_errors(which: str, *, replaced_by: str) -> str:
    """The statement for incidents that match a condition."""
    return REMOVE.format(error=replaced_by, which=which)


def erase_incidents(run_ids: Sequence[UUID], *, replaced_by: str) -> list[int]:
    """Remove the errors of incidents that these runs belong to, in the caller's transaction; returns their ids. The next failure
    with the same cause begins another incident."""
    ids: list[int] = fetch_column(OF_RUNS, {"runs": list(run_ids)})
    execute(remove_errors("id = ANY(%s::bigint[])", replaced_by=replaced_by), [ids])
    return ids
