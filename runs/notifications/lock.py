"""One transaction at a time decides what recipients get. Take the lock before any row: the planner does."""

from runs.db.sql import execute, fetch

SPACE = 0x57AE  # of two-integer advisory locks
TRY_LOCK = "SELECT pg_try_advisory_xact_lock(%s::int, 0)"
WAIT_FOR_LOCK = "SELECT pg_advisory_xact_lock(%s::int, 0)"


def try_lock() -> bool:
    """Take the lock, unless another transaction has it."""
    [(is_mine,)] = fetch(TRY_LOCK, [SPACE])
    return bool(is_mine)


def lock_planning() -> None:
    """Wait until no other transaction decides."""
    execute(WAIT_FOR_LOCK, [SPACE])
