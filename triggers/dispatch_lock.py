"""The dispatch lock: one dispatcher at a time writes decisions and runs. The shards of a dispatcher (`triggers.dispatch.shards`) share it
among them."""

from runs.db.sql import fetch

LOCK = (0x57AC, 1)  # two-integer advisory locks have their own space, separate from those of keys
# Known row locks are skipped beforehand. For others the wait is short, because everything else waits meanwhile.
TRY_LOCK = "SELECT pg_try_advisory_xact_lock(%s::int, %s::int), set_config('lock_timeout', '200ms', true)"
TRY_SHARED = "SELECT pg_try_advisory_xact_lock_shared(%s::int, %s::int)"
# A process that freezes while it holds the dispatch lock loses its session.
WAIT = """
SELECT set_config('idle_in_transaction_session_timeout', '5s', true), pg_advisory_xact_lock(%s::int, %s::int)
"""


def try_lock() -> bool:
    return bool(fetch(TRY_LOCK, LOCK)[0][0])


def wait_for_dispatch() -> None:
    """Wait for the current batch to commit, and block the next one until this transaction ends. Only for few rows."""
    fetch(WAIT, LOCK)
