"""Holds of checklist items: only the live run that holds an item checks it. A durable run holds its due items from the
commit of its choice until it records their outcomes or ends. The hold of an atomic run is a lock of its transaction,
which does not hide the items from the people who edit the checklist.
"""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from agents.checklists.run_checklist import DueItem, HoldItems
from agents.exceptions import Permanent
from agents.journal.engine import Journal
from runs.claim import Claim
from runs.db.session import writing
from runs.db.sql import fetch_column
from runs.states import LIVE_SQL

SPACE = 0x57B0  # namespace of the advisory locks
# The next statement after taking the locks sees what other runs have held and recorded before.
TRY_LOCK = f"""
SELECT id FROM unnest(%(ids)s::bigint[]) AS wanted(id) WHERE pg_try_advisory_xact_lock(hashtextextended(id::text, {SPACE}))
"""  # noqa: S608  (our own parts)
HELD_BY_OTHER = """
EXISTS (SELECT FROM runs_run holder
        WHERE holder.id = item.held_by AND holder.id <> %(run)s::uuid AND holder.status IN {live})
""".replace("{live}", LIVE_SQL)
UNCHANGED = f"""
SELECT item.id FROM unnest(%(ids)s::bigint[], %(checked)s::timestamptz[]) AS seen(id, checked_at)
JOIN agents_checklistitem item ON item.id = seen.id AND item.last_checked_at IS NOT DISTINCT FROM seen.checked_at
WHERE NOT {HELD_BY_OTHER}
"""  # noqa: S608
# In the order in which edits and records lock them, against deadlocks.
HOLD = f"""
WITH mine AS MATERIALIZED ({UNCHANGED} ORDER BY item.id FOR NO KEY UPDATE OF item)
UPDATE agents_checklistitem item SET held_by = %(run)s::uuid FROM mine WHERE item.id = mine.id RETURNING item.id
"""  # noqa: S608
FREE = f"SELECT id FROM agents_checklistitem item WHERE id = ANY(%(ids)s::bigint[]) AND NOT {HELD_BY_OTHER}"  # noqa: S608
NOBODY = UUID(int=0)


def holding(claim: Claim, journal: Journal | None = None) -> HoldItems:
    """The function by which the run of this claim holds items; a run without a journal is atomic."""

    def hold(due: Sequence[DueItem]) -> list[DueItem]:
        if journal is None:
            return held_items(claim.run_id, due)
        if journal.may_write:
            return held_items(claim.run_id, due, keeps=True)
        if journal.store.in_transaction:
            raise Permanent("run.checklist.due() inside transaction.atomic(): call it outside, it commits by itself")
        with writing():
            return held_items(claim.run_id, due, keeps=True)

    return hold


def held_items(run_id: UUID, due: Sequence[DueItem], *, keeps: bool = False) -> list[DueItem]:
    """Hold the items in this transaction and return those that this run may check; `keeps`: hold them after the commit
    as well. Items that another run holds, or has checked since they were read, are left out.
    """
    wanted = {item.id: item for item in due}
    mine = [wanted[id] for id in fetch_column(TRY_LOCK, {"ids": list(wanted)})] if wanted else []
    if not mine:
        return []
    seen = {"run": run_id, "ids": [item.id for item in mine], "checked": [item.last_checked_at for item in mine]}
    return _among(due, fetch_column(HOLD if keeps else UNCHANGED, seen))


def free_items(due: Sequence[DueItem]) -> list[DueItem]:
    """The items that no live run holds."""
    return _among(due, fetch_column(FREE, {"ids": [item.id for item in due], "run": NOBODY})) if due else []


def _among(due: Sequence[DueItem], ids: Sequence[Any]) -> list[DueItem]:
    return [item for item in due if item.id in set(ids)]
