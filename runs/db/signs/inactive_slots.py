"""Inactive replication slots that retain more than they should."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from runs.sign import WARNING, Problem, Sign

TRANSACTIONS, BYTES = 1_000_000, 2**30  # the maximum that one may retain
SQL = """
SELECT name, transactions, bytes FROM (
  SELECT slot_name AS name, greatest(age(xmin), age(catalog_xmin), 0) AS transactions,
    coalesce(pg_wal_lsn_diff(pg_current_wal_insert_lsn(), restart_lsn), 0)::bigint AS bytes
  FROM pg_replication_slots WHERE NOT active) slot
WHERE transactions > %(slot_transactions)s::bigint OR bytes > %(slot_bytes)s::bigint ORDER BY name
"""


@dataclass(frozen=True, kw_only=True)
class Slot:
    """The transactions and bytes of WAL that the server retains for it."""

    name: str
    transactions: int
    bytes: int


def problems(rows: Sequence[Slot]) -> Iterator[Problem]:
    for slot in rows:
        yield Problem(
            name=f"slot:{slot.name}",
            severity=WARNING,
            text=f"Replication slot {slot.name} is inactive and retains {slot.bytes / 2**30:.1f} GiB of WAL and the dead rows of "
            f"the last {slot.transactions:,} transactions. It fills the disk.",
            remedy="Start the program that reads from it, or, if none does any more, drop it: "
            f"SELECT pg_drop_replication_slot('{slot.name}')",
        )


INACTIVE_SLOTS = Sign(
    name="inactive_slots",
    sql=SQL,
    row=Slot,
    problems=problems,
    kinds=("slot",),
    parameters=lambda: {"slot_transactions": TRANSACTIONS, "slot_bytes": BYTES},
    limit=None,
)
