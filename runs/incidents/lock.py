"""One transaction at a time changes incidents and counts messages to people. Take the lock before any row of an
incident.
"""

from runs.db.sql import execute

SPACE = 0x57AF  # of two-integer advisory locks
LOCK = "SELECT pg_advisory_xact_lock(%s::int, 0)"


def lock() -> None:
    execute(LOCK, [SPACE])
