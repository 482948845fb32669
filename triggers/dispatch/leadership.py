"""Which dispatcher reads and matches, and what the others do about one that is stuck.

Leadership is an advisory lock of the session, taken before anything is read and given back before the process blocks. It only
spares the stand-bys the work: the lock of the dispatching transaction (LOCK) is what makes dispatch serial.
"""

import time
from datetime import timedelta

import structlog

from runs.db.sql import fetch
from triggers.dispatch.lock import LOCK

log = structlog.get_logger(__name__)

LEADER = (0x57AC, 2)
SESSION = "wakeful:dispatcher"  # application_name of a dispatcher's working session

PATIENCE = 10.0  # seconds that a stand-by has to be one before it looks at the holder
LOOK_EVERY = 5.0  # seconds between two such looks: each takes every partition of the lock table
IDLE = timedelta(
    seconds=5
)  # PostgreSQL ends a session that is idle in its transaction for this long, unless it is told not to
ACTIVE = timedelta(seconds=35)  # statement_timeout and a margin

TAKE = "SELECT pg_try_advisory_lock(%s::int, %s::int)"
RELEASE = "SELECT pg_advisory_unlock(%s::int, %s::int)"
NAME = "SELECT set_config('application_name', %s::text, false)"
# A statement that runs is work, however long its transaction is. `is_silent`: the leader matches a very large event, or its
# process is frozen, be it in the middle of an answer that it does not read.
HOLDERS = """
WITH holder AS MATERIALIZED (
  SELECT lock.objid, activity.pid, activity.application_name, activity.state, activity.wait_event,
    clock_timestamp() - activity.state_change AS age
  FROM pg_locks lock JOIN pg_stat_activity activity ON activity.pid = lock.pid
  WHERE lock.locktype = 'advisory' AND lock.granted AND activity.datname = current_database() AND lock.objsubid = 2
    AND lock.classid = %(space)s::bigint::oid AND lock.objid IN (%(lock)s::bigint::oid, %(leader)s::bigint::oid)
    AND activity.pid <> pg_backend_pid()
), stuck AS MATERIALIZED (
  SELECT pid FROM holder
  WHERE objid = %(lock)s::bigint::oid AND application_name = %(session)s::text
    AND (state LIKE 'idle in transaction%%' AND age > %(idle)s::interval OR state = 'active' AND age > %(active)s::interval)
)
SELECT
  coalesce(bool_or(objid = %(leader)s::bigint::oid AND (
    age > %(idle)s::interval AND (state = 'idle' OR wait_event = 'ClientWrite') OR age > %(active)s::interval)), false) AS is_silent,
  ARRAY(SELECT pid FROM stuck ORDER BY pg_terminate_backend(pid)) AS ended
FROM holder
"""


class Leadership:
    """This process's part in it; `begin` after every (re)connection, which gives up what the old session held."""

    def __init__(self) -> None:
        self.begin_standing_by()

    def begin_standing_by(self) -> None:
        self.is_held = False
        self.goes_ahead = False
        self.standby_since: float | None = None
        self.looked_at = float("-inf")

    def begin(self) -> None:
        """Name the session, so that other dispatchers know what they may end."""
        fetch(NAME, [SESSION])
        self.begin_standing_by()

    def take(self) -> bool:
        """May this process dispatch? It tries, and does not wait."""
        if not self.is_held and not fetch(TAKE, LEADER)[0][0]:
            self._stand_by()
            return self.goes_ahead
        self.is_held, self.goes_ahead, self.standby_since = True, False, None
        return True

    def release(self) -> None:
        """Call before blocking, so that a process frozen while it waits blocks no other."""
        if self.is_held:
            fetch(RELEASE, LEADER)
            self.is_held = False

    def _stand_by(self) -> None:
        now = time.monotonic()
        self.standby_since = now if self.standby_since is None else self.standby_since
        if now - self.standby_since < PATIENCE or now - self.looked_at < LOOK_EVERY:
            return
        self.looked_at = now
        self.goes_ahead = look_at_holders()
        if self.goes_ahead:
            log.warning("dispatcher.goes_ahead", reason="the leading dispatcher has been silent")


def look_at_holders() -> bool:
    """End dispatchers that are stuck in the dispatching transaction; is the leader silent, outside of any transaction?"""
    [(is_silent, ended)] = fetch(
        HOLDERS,
        {"space": LOCK[0], "lock": LOCK[1], "leader": LEADER[1], "session": SESSION, "idle": IDLE, "active": ACTIVE},
    )
    if ended:
        log.warning("dispatcher.stuck_holder_ended", sessions=ended)
    return bool(is_silent)
