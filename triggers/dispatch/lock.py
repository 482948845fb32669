"""The dispatch lock: one dispatcher at a time writes decisions and runs."""

from runs.db.sql import fetch

LOCK = (0x57AC, 1)  # the two-integer advisory locks are a space of their own, apart from the keys'
# A row that is locked elsewhere is left, where that is known beforehand; where not, the wait for it is short: all else waits.
TRY_LOCK = "SELECT pg_try_advisory_xact_lock(%s::int, %s::int), set_config('lock_timeout', '200ms', true)"
# Any other process that takes the lock of dispatch loses its session if it freezes meanwhile.
WAIT = """
SELECT set_config('idle_in_transaction_session_timeout', '5s', true), pg_advisory_xact_lock(%s::int, %s::int)
"""


def try_lock() -> bool:
    return bool(fetch(TRY_LOCK, LOCK)[0][0])


def wait_for_dispatch() -> None:
    """Let the batch that is under way commit, and keep the next one waiting until this transaction ends. For few rows only."""
    fetch(WAIT, LOCK)
