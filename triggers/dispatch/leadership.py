"""Leadership: which dispatcher reads and matches, and how the others handle a stuck leader.

The leader holds a session-level advisory lock, which it takes before it reads and releases before it blocks. This only saves
work on the stand-bys: the lock of the dispatching transaction (LOCK) makes dispatch serial.
"""

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import structlog
from django.db import DatabaseError

from runs.db.sql import fetch
from runs.db.trip import Trip, one_trip
from triggers.dispatch.promise import LISTEN, listens_for
from triggers.dispatch.rules import VERSION, Version
from triggers.dispatch_lock import LOCK

log = structlog.get_logger(__name__)

LEADER = (0x57AC, 2)
SESSION = "wakeful:dispatcher"  # application_name of a dispatcher's working session

PATIENCE = 10.0  # seconds on stand-by before it checks the holder of the lock
LOOK_EVERY = 5.0  # seconds between two checks: each locks all partitions of the lock table
IDLE = timedelta(seconds=5)  # after this, PostgreSQL itself normally ends a session that is idle in a transaction
ACTIVE = timedelta(seconds=35)  # statement_timeout and a margin

NEWEST = "SELECT last_value FROM triggers_seq"
TAKE = f"SELECT pg_try_advisory_lock(%s::int, %s::int), ({NEWEST}), rules.* FROM ({VERSION}) rules"  # noqa: S608  (our own parts)
LATE = 2.0  # seconds between two looks of a leader, after which another may have gone ahead
RELEASE = f"SELECT pg_advisory_unlock(%s::int, %s::int), {LISTEN}"  # noqa: S608  (our own parts)
NOTE = f"SELECT {LISTEN}"
NAME = "SELECT set_config('application_name', %s::text, false)"
# A running statement counts as work, for any length of its transaction. `is_silent`: the leader is matching a very large
# event, or its process is frozen, possibly while PostgreSQL sends it a result.
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
    """The leadership of this process. Call `begin` after each (re)connection: the old session's lock is gone."""

    def __init__(self) -> None:
        self.begin_standing_by()

    def begin_standing_by(self) -> None:
        self.is_held = False
        self.goes_ahead = False
        self.reads_along = True  # until it fails in this session
        # Another dispatcher may have led until the event or redispatch with this `seq`; None: it may lead now.
        self.since: int | None = None
        self.version: Version | None = None  # of the rules, if `take` has just read it
        self.took_at = float("-inf")
        self.standby_since: float | None = None
        self.looked_at = float("-inf")
        self.noted_at = float("-inf")

    @property
    def stands_by(self) -> bool:
        return self.standby_since is not None

    def begin(self) -> None:
        """Name the session, so that other dispatchers recognise it and may end it."""
        fetch(NAME, [SESSION])
        self.begin_standing_by()

    def take(self, along: Callable[[Trip], object] = lambda trip: None) -> bool:
        """Try to take the lead; whether this process may dispatch. Does not wait. The round trip that asks for the lead also sends what
        `along` adds, but for a stand-by; if that fails, the lead is taken all the same."""
        is_late = time.monotonic() - self.took_at > LATE
        self.took_at, self.version = time.monotonic(), None
        if not self.is_held:
            [(is_taken, newest, *version)] = self._ask(along)
            self.since, self.version = newest if is_taken else None, [tuple(version)]
            if not is_taken:
                self._stand_by()
                return self.goes_ahead
        elif is_late:
            [(self.since,)] = fetch(NEWEST)
        self.is_held, self.goes_ahead, self.standby_since = True, False, None
        return True

    def _ask(self, along: Callable[[Trip], object]) -> list[Any]:
        taken = None
        try:
            with one_trip(begins=False) as trip:
                taken = trip.add(TAKE, LEADER)
                if not self.stands_by and self.reads_along:
                    along(trip)
        except DatabaseError:
            if taken is None or not taken.has_come:
                raise
            log.warning("dispatcher.not_read_along", exc_info=True)
            self.reads_along = False
        return taken.rows()

    def release(self) -> None:
        """Call it before blocking, so that a process that freezes while it waits does not block others. Notes that it listens."""
        if not self.is_held:
            self.note()
            return
        fetch(RELEASE, [*LEADER, listens_for()])
        self.is_held, self.noted_at = False, time.monotonic()

    def note(self) -> None:
        """Note that it listens, long before the last note is over. Call it also where the lead is kept: a busy dispatcher never blocks."""
        is_noted = (time.monotonic() - self.noted_at) * 1000 < listens_for() / 2
        if not is_noted and not self.stands_by:
            fetch(NOTE, [listens_for()])
            self.noted()

    def noted(self) -> None:
        self.noted_at = time.monotonic()

    def rest(self) -> None:
        """There is nothing to lead: do not stand by."""
        self.standby_since, self.goes_ahead = None, False

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
    """End dispatchers that are stuck in the dispatching transaction; whether the leader is silent outside of one."""
    [(is_silent, ended)] = fetch(
        HOLDERS,
        {"space": LOCK[0], "lock": LOCK[1], "leader": LEADER[1], "session": SESSION, "idle": IDLE, "active": ACTIVE},
    )
    if ended:
        log.warning("dispatcher.stuck_holder_ended", sessions=ended)
    return bool(is_silent)
