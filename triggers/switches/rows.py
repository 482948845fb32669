"""Read and write timers, and record the events of their episodes."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings

from runs.db.sql import execute, execute_many, fetch, fetch_as
from triggers.accept import Incoming, accept_own
from triggers.switches.switch import CLOSED, OPENED, Switch
from triggers.switches.timer import Timer, Transition

COLUMNS = [column.name for column in fields(Timer)]
NAMES = ", ".join(COLUMNS)
CHANGED = ", ".join(f"{name} = excluded.{name}" for name in COLUMNS if name not in ("id", "source_id", "key"))
READ = f"""
SELECT {NAMES} FROM triggers_switchtimer
WHERE (source_id, key) IN (SELECT * FROM unnest(%s::uuid[], %s::text[])) FOR NO KEY UPDATE
"""  # noqa: S608  (our own parts)
THESE = f"""
SELECT {NAMES} FROM triggers_switchtimer
WHERE id = ANY(%s::uuid[]) AND look_at <= (SELECT clock_timestamp()) FOR NO KEY UPDATE SKIP LOCKED
"""  # noqa: S608
# A source that was deleted since has no timers.
WRITE = f"""
INSERT INTO triggers_switchtimer ({NAMES})
SELECT {", ".join(f"%({name})s" for name in COLUMNS)} FROM triggers_source WHERE id = %(source_id)s
ON CONFLICT (source_id, key) DO UPDATE SET {CHANGED}
"""  # noqa: S608
DELETE = "DELETE FROM triggers_switchtimer WHERE id = ANY(%s::uuid[])"
COUNT = "SELECT source_id, count(*) FROM triggers_switchtimer WHERE source_id = ANY(%s::uuid[]) GROUP BY source_id"

Place = tuple[UUID, str]  # identifies a timer: its switch and its key


def read(places: Collection[Place]) -> dict[Place, Timer]:
    """Lock and read the existing timers."""
    rows = fetch_as(Timer, READ, [[id for id, _ in places], [key for _, key in places]])
    return {(timer.source_id, timer.key): timer for timer in rows}


def read_due(ids: Sequence[UUID]) -> list[Timer]:
    """Lock and read the timers that are due, except those that another session has locked."""
    return fetch_as(Timer, THESE, [list(ids)])


def count_keys(switches: Collection[UUID]) -> dict[UUID, int]:
    return dict(fetch(COUNT, [list(switches)])) if switches else {}


def write(timers: Collection[Timer]) -> None:
    if timers:
        execute_many(WRITE, [{name: getattr(timer, name) for name in COLUMNS} for timer in timers])


def forget(timers: Collection[Timer]) -> None:
    if timers:
        execute(DELETE, [[timer.id for timer in timers]])


def tell(transitions: Sequence[Transition], switches: Mapping[UUID, Switch], now: datetime) -> None:
    """Record the events of episodes. Write the timers afterwards."""
    events = [event_of(one, switches[one.timer.source_id], now) for one in transitions]
    accept_own(events, [one.event_id for one in transitions])
    for timer in (one.timer for one in transitions):
        if timer.state == "open" and timer.key and not switches[timer.source_id].recurring:
            timer.look_at = kept_until(now)


def kept_until(opened_at: datetime) -> datetime:
    """A key whose absence never ends is kept as long as the event that opened it."""
    return opened_at + settings.WAKEFUL_KEEP_EVENTS


def event_of(transition: Transition, switch: Switch, now: datetime) -> Incoming:
    """(timer, episode) identifies it, so that each is recorded once. An episode that the clock opens begins a new causal chain, as
    every wake by the clock; its cause is the last event that the switch saw."""
    timer, item = transition.timer, transition.item
    word = "opened" if transition.is_open else "closed"
    data: dict[str, Any] = {
        "switch": switch.slug,
        "key": timer.key,
        "episode": transition.episode,
        "reason": transition.reason,
        "since": _text(transition.since),
        "last_seen": _text(transition.seen_at),
        "due": _text(transition.due_at),
        "late_by": _seconds(transition, now),
    }
    if transition.missed is not None:
        data["missed"] = transition.missed
    if not transition.is_open:
        data["opened"] = str(transition.opened_id) if transition.opened_id else None
    return Incoming(
        source_id=switch.id,
        ce_source=f"/sources/{switch.slug}/",
        ce_id=f"{timer.id}:{transition.episode}:{word}",
        type=OPENED if transition.is_open else CLOSED,
        subject=timer.key,
        time=transition.at,
        data=data,
        root_id=item.root_id if item else None,
        cause_event_id=item.event_id if item else transition.last_id,
        depth=item.depth + 1 if item else 0,
        chain=item.chain if item else (),
        is_tainted=timer.is_tainted,
    )


def _seconds(transition: Transition, now: datetime) -> float:
    """Seconds from the due time to the opening, or to the event."""
    if transition.due_at is None:
        return 0.0
    return max((now if transition.is_open else transition.at) - transition.due_at, timedelta()).total_seconds()


def _text(at: datetime | None) -> str | None:
    return at.isoformat() if at else None
