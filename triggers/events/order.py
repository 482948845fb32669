"""The one order of events: `seq`, as far as no open transaction can still commit an event.

`seq` is given when the row is written, and becomes visible when its transaction commits, which may be much later. Who reads on from a
`seq` therefore stops at the horizon: up to there each event is committed, or never will be. It costs writers nothing: PostgreSQL
keeps the lock of `nextval` until the transaction ends, so the transactions that may hold a number are those that hold this lock.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import QuerySet

from agents.kernel.ids import first_id_at
from runs.db.sql import fetch
from triggers.models import Event

# The clocks of the web process, which gives the id, and of the database may differ.
SKEW = timedelta(minutes=1)
# Imported events keep their ids, and have a `seq` of their import: they are no measure. Nor is one whose id is older or newer than its
# row, as that of a process with a slow or a fast clock.
BEFORE = """
SELECT seq FROM (
  SELECT id, seq, imported_at, received_at FROM triggers_event WHERE id < %s::uuid ORDER BY id DESC LIMIT 1000) near
WHERE imported_at IS NULL AND received_at < %s::timestamptz ORDER BY id DESC LIMIT 1
"""
AFTER = """
SELECT greatest(near.seq, (SELECT max(seq) FROM triggers_event
  WHERE imported_at IS NOT NULL AND received_at < %(end)s::timestamptz
    AND (%(start)s::timestamptz IS NULL OR received_at >= %(start)s::timestamptz)))
FROM (SELECT id, seq, imported_at, received_at FROM triggers_event WHERE id >= %(id)s::uuid ORDER BY id LIMIT 1000) near
WHERE near.imported_at IS NULL AND near.received_at >= %(end)s::timestamptz ORDER BY near.id LIMIT 1
"""
LAST = "SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM triggers_seq"
# Other sessions', by their number. When it began is hidden for sessions of other roles, unless ours has pg_read_all_stats.
OPEN = """
SELECT lock.virtualtransaction, session.xact_start FROM pg_locks lock LEFT JOIN pg_stat_activity session ON session.pid = lock.pid
WHERE lock.locktype = 'relation' AND lock.relation = 'triggers_seq'::regclass AND lock.mode = 'RowExclusiveLock'
  AND lock.database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND lock.pid IS DISTINCT FROM pg_backend_pid()
"""


@dataclass(kw_only=True)
class Horizon:
    """The `seq` up to which no event will be committed any more, as one reader knows it. It never goes back. A reader makes another one
    when it connects again."""

    reached: int = 0
    last: int = 0  # the last number when `awaited` were open
    awaited: frozenset[str] = frozenset()

    def advance(self) -> int:
        """The `seq` up to which later statements of this READ COMMITTED transaction read a complete log."""
        # The last number first: who takes a later one need not be seen.
        last, open = last_seq(), open_transactions()
        if last < self.reached:  # the database was restored
            self.reached, self.last, self.awaited = 0, 0, frozenset()
        if not self.awaited & open.keys():
            self.reached, self.last, self.awaited = max(self.reached, self.last), last, frozenset(open)
        if not open:
            self.reached = max(self.reached, last)
        elif self.reached < self.last:
            # The first look, or a long transaction: then a number from before the oldest of them began.
            self.reached = max(self.reached, _before(open.values()))
        return self.reached


def _before(beginnings: Collection[datetime | None]) -> int:
    known = [began for began in beginnings if began is not None]
    return seq_before(min(known)) if len(known) == len(beginnings) else 0


def last_seq() -> int:
    [(last,)] = fetch(LAST)
    return int(last)


def open_transactions() -> dict[str, datetime | None]:
    """Transactions of other sessions that may have recorded an event, and when they began; None: that is hidden."""
    return dict(fetch(OPEN))


def may_still_record(end: datetime | None) -> bool:
    """Whether a transaction is open that may have recorded an event which arrived before this time."""
    return any(end is None or began is None or began < end for began in open_transactions().values())


def seq_before(instant: datetime) -> int:
    """A `seq` below those of all events that arrived from then on, and of all that are recorded or imported from then on."""
    found = fetch(BEFORE, [first_id_at(instant - SKEW), instant])
    return int(found[0][0]) if found else 0


def seq_after(start: datetime | None, end: datetime) -> int | None:
    """The `seq` that no event exceeds which arrived between these; None: no later event is known."""
    found = fetch(AFTER, {"id": first_id_at(end + SKEW), "start": start, "end": end})
    return int(found[0][0]) if found else None


def in_parts(events: QuerySet[Event]) -> tuple[QuerySet[Event], QuerySet[Event]]:
    """The undispatched events, then the dispatched ones: each part has an index by `seq`. In this order, an event that
    is dispatched meanwhile is found twice, not missed.
    """
    return events.filter(dispatched_at=None), events.filter(dispatched_at__isnull=False)


def in_order(events: QuerySet[Event], most: int) -> list[Event]:
    """The first of them by `seq`."""
    found = {event.pk: event for part in in_parts(events) for event in part.order_by("seq")[:most]}
    return sorted(found.values(), key=lambda event: event.seq)[:most]


def scanned(after: int, upto: int, most: int) -> int:
    """The `seq` to which a look may read that begins after one and reads about `most` events; at most `upto`."""
    ahead = in_parts(Event.objects.filter(seq__gt=after, seq__lte=upto))
    ends = [part.order_by("seq").values_list("seq", flat=True)[most - 1 : most].first() for part in ahead]
    return min((end for end in ends if end is not None), default=upto)
