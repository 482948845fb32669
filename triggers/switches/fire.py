"""Open the timers that are due. Their due time counts by the database's clock, and dispatch must have passed it."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from runs.db.sql import database_now, execute, fetch_column
from runs.failpoints import failpoint
from triggers.switches import rows
from triggers.switches.backlog import Backlog
from triggers.switches.switch import Switch
from triggers.switches.switches import Switches
from triggers.switches.timer import Reason, Timer, Transition, newest_missed

MOST = 500  # timers of one transaction
NEXT_DUE = "SELECT min(look_at) - clock_timestamp() FROM triggers_switchtimer"
DUE = """
SELECT id FROM triggers_switchtimer
WHERE look_at <= (SELECT clock_timestamp()) AND id <> ALL(%(but)s::uuid[])
  AND (%(before)s::timestamptz IS NULL OR look_at < %(before)s::timestamptz)
ORDER BY look_at LIMIT %(most)s::int
"""
PUT_OFF = "UPDATE triggers_switchtimer SET look_at = clock_timestamp() + interval '1 hour' WHERE id = %s::uuid"
STILL_DUE = "SELECT id FROM triggers_switchtimer WHERE id = %s::uuid AND look_at <= (SELECT clock_timestamp())"
SOON, RARELY = timedelta(milliseconds=200), timedelta(minutes=1)


def due(switches: Switches, most: int, but: Sequence[UUID] = ()) -> list[UUID]:
    """The timers that are due, except `but`. While many events wait for dispatch, those that were due before the first of them."""
    before = Backlog.read(switches).before
    return fetch_column(DUE, {"before": before, "but": list(but), "most": min(most, MOST)})


def fire(ids: Sequence[UUID], switches: Switches) -> int:
    """Open these timers if they are still due, in the caller's transaction and under the dispatch lock; return their
    number.
    """
    timers, now = rows.read_due(ids), database_now()
    backlog = Backlog.read(switches)
    opened, kept, forgotten = list[Transition](), list[Timer](), list[Timer]()
    for timer in timers:
        switch = switches.by_id.get(timer.source_id)
        if _is_over(timer, switch, now):
            forgotten.append(timer)
            continue
        if switch and switch.recurring:
            opened += _miss(timer, switch, backlog, now)
        elif timer.state == "open" and timer.key and timer.opened_at:
            timer.look_at = rows.kept_until(timer.opened_at)
        elif timer.state != "waiting" or switch is None:
            timer.rest()
        elif not timer.put_off(switch, now):
            opened += _open(timer, switch, backlog, now)
        kept.append(timer)
    rows.tell(opened, switches.by_id, now)
    rows.write(kept)
    rows.forget(forgotten)
    failpoint("before_absence_commit")
    return len(timers)


def _open(timer: Timer, switch: Switch, backlog: Backlog, now: datetime) -> list[Transition]:
    assert timer.due_at is not None  # noqa: S101  (it waits)
    if backlog.may_hide([rule.id for rule in switch.rules], timer.due_at):
        timer.look_at = now + _patience(timer.due_at, now)
        return []
    overran = timer.began_at is not None and timer.due_at == timer.began_at + switch.grace
    return [timer.open(timer.due_at, now, Reason.OVERRAN if overran else Reason.ABSENT)]


def _miss(timer: Timer, switch: Switch, backlog: Backlog, now: datetime) -> list[Transition]:
    timer.expect(switch, now)
    missed = newest_missed(timer, switch, now)
    if missed is None:
        return []
    if backlog.may_hide([switch.seen.id], missed + switch.grace):
        timer.look_at = now + _patience(missed + switch.grace, now)
        return []
    return timer.miss(switch, now, now)


def _patience(due_at: datetime, now: datetime) -> timedelta:
    return min(max((now - due_at) / 4, SOON), RARELY)


def _is_over(timer: Timer, switch: Switch | None, now: datetime) -> bool:
    """Whether the key was only kept for late events, or is not expected any more."""
    if switch and switch.recurring:
        return timer.key not in switch.expected
    if not timer.key or timer.state == "waiting":
        return False
    return timer.opened_at is None or rows.kept_until(timer.opened_at) <= now


def still_due(id: UUID) -> list[UUID]:
    return fetch_column(STILL_DUE, [id])


def put_off(id: UUID) -> int:
    """Retry a timer in an hour that cannot be opened through its own fault."""
    return execute(PUT_OFF, [id])
