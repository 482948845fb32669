"""A child of a worker that stays in its task for a moment after its last run, and is woken for the next one by a NOTIFY of its own
session, without the broker.

1. A child that waits listens on the channel of its queue and holds an advisory lock of the queue, so there is one at most. It gives
   both up before it claims.
2. The dispatcher wakes it right after the commit that makes a run ready, in the same round trip. Where it can take the lock, no child
   waits, and it rings by the broker.
3. It looks again some milliseconds later, and rings by the broker for runs that are still ready: that is what a lost NOTIFY costs, or
   a child that is frozen. After that it rings by the broker alone for a while.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from zlib import crc32

import psycopg
import structlog
from django.conf import settings
from django.db import DatabaseError

from runs.db.sql import fetch
from runs.db.trip import Trip, commit_in

log = structlog.get_logger(__name__)

SPACE = 0x57B1  # namespace of the two-integer advisory locks
LOCK = f"SELECT pg_try_advisory_lock({SPACE}, hashtext(%s::text))"
UNLOCK = f"SELECT pg_advisory_unlock({SPACE}, hashtext(%s::text))"
# The lock is given back at the end of this statement. OFFSET: a NOTIFY only where it could not be taken.
WAKE = f"""
SELECT queue FROM (
  SELECT queue, channel FROM unnest(%(queues)s::text[], %(channels)s::text[]) AS asked(queue, channel)
  WHERE NOT pg_try_advisory_xact_lock({SPACE}, hashtext(queue)) OFFSET 0) waiting
WHERE pg_notify(channel, '')::text IS NOT NULL
"""  # noqa: S608  (our own parts)
WOKEN = 0.01  # seconds after a NOTIFY, in which its child may still seem to wait
CLAIMED = 0.02  # seconds after a ring or a NOTIFY, by which an idle child has claimed the run
DISTRUST = 1.0  # seconds without a NOTIFY after one that led to no claim


def channel_of(queue: str) -> str:
    return f"wakeful_queue_{crc32(queue.encode()):08x}"


def _with_channels(queues: Sequence[str]) -> dict[str, Sequence[str]]:
    return {"queues": queues, "channels": [channel_of(queue) for queue in queues]}


class Stayers:
    """The children that wait, for the dispatcher."""

    def __init__(self) -> None:
        self.woken: set[str] = set()  # queues, since the last call of `left`
        self.woken_at: dict[str, float] = {}
        self.rely_at = 0.0

    def commit(self, queues: Collection[str], trip: Trip) -> None:
        """Commit the caller's transaction with the statements of the trip, and wake the child that waits for each of these queues. Inside
        another transaction the caller commits as usual."""
        if (committed := commit_in(trip)) is None:
            return
        asked = self._asked(queues)
        found = trip.add(WAKE, _with_channels(asked)) if asked else None
        try:
            trip.wait()
        except psycopg.DatabaseError:
            if not committed.has_come:
                raise
            self._failed()
        else:
            if found:
                self._note(found.rows())

    def wake(self, queues: Collection[str]) -> None:
        """Wake the child that waits for each of these queues, whose runs are committed."""
        if asked := self._asked(queues):
            try:
                self._note(fetch(WAKE, _with_channels(asked)))
            except DatabaseError:
                self._failed()

    def _asked(self, queues: Collection[str]) -> Sequence[str]:
        now = time.monotonic()
        if not settings.WAKEFUL_STAY or now < self.rely_at:
            return ()
        return [queue for queue in queues if now - self.woken_at.get(queue, 0.0) > WOKEN]

    def _note(self, woken: Sequence[tuple[str]]) -> None:
        self.woken |= {queue for (queue,) in woken}
        self.woken_at.update(dict.fromkeys(self.woken, time.monotonic()))

    def _failed(self) -> None:
        log.warning("stayers.not_woken", exc_info=True)
        self.rely_at = time.monotonic() + DISTRUST

    def left(self, runs: Mapping[str, int]) -> dict[str, int]:
        """The runs of each queue that are left to ring for."""
        left = {queue: count - (queue in self.woken) for queue, count in runs.items()}
        self.woken = set()
        return {queue: count for queue, count in left.items() if count}

    def looked(self, began: float, *, runs_are_left: bool) -> None:
        """Were runs still ready in a look that began then? On a busy machine it may have ended much later."""
        recent = {queue: at for queue, at in self.woken_at.items() if began - at <= CLAIMED}
        if runs_are_left and len(recent) < len(self.woken_at):
            self.rely_at = time.monotonic() + DISTRUST
        self.woken_at = recent if runs_are_left else {}
