"""New, edited, paused and resumed switches, in the transaction of the caller, who holds the dispatch lock."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TypeVar
from uuid import UUID

from runs.db.sql import database_now, execute, execute_many, fetch
from triggers.switches import rows
from triggers.switches.switch import Switch
from triggers.switches.switches import Switches
from triggers.switches.timer import Timer

T = TypeVar("T")
TOGETHER = 1_000  # switches of one piece
KNOWN = "SELECT source_id, shape, terms, is_on FROM triggers_switch"
ON = """
INSERT INTO triggers_switch (source_id, shape, terms) SELECT id, %(shape)s::text, %(terms)s::text FROM triggers_source
WHERE id = %(id)s::uuid
ON CONFLICT (source_id) DO UPDATE SET shape = excluded.shape, terms = excluded.terms, is_on = true
"""
OFF = "UPDATE triggers_switch SET is_on = false WHERE source_id = ANY(%s::uuid[])"
# What is open stays open until the event returns.
PAUSE = """
UPDATE triggers_switchtimer SET state = 'idle', since = NULL, since_id = NULL, latest_at = NULL, latest_id = NULL, began_at = NULL,
  due_at = NULL, look_at = CASE WHEN key = '' THEN NULL ELSE clock_timestamp() END
WHERE source_id = ANY(%s::uuid[]) AND state = 'waiting'
"""
FORGET = "DELETE FROM triggers_switchtimer WHERE source_id = ANY(%s::uuid[])"
# A lower bound: `Timer.put_off` adds the hours that are not active. A job that has started has to end within the grace.
MOVE = """
UPDATE triggers_switchtimer SET
  due_at = coalesce(began_at + %(grace)s::interval, since + %(length)s::interval),
  look_at = coalesce(began_at + %(grace)s::interval, since + %(length)s::interval)
WHERE source_id = %(id)s::uuid AND state = 'waiting'
"""
NOT_EXPECTED = "DELETE FROM triggers_switchtimer WHERE source_id = %(id)s::uuid AND key <> ALL(%(keys)s::text[])"
MEND = """
UPDATE triggers_switchtimer SET
  since = now.at, due_at = now.at + (due_at - since), look_at = now.at + (due_at - since),
  seen_at = least(seen_at, now.at), latest_at = least(latest_at, now.at), began_at = least(began_at, now.at)
FROM (SELECT clock_timestamp() AS at OFFSET 0) now WHERE state = 'waiting' AND since > now.at
"""


def arm(switches: Switches) -> int:
    """Let the timers follow the switches as they are now; the number of changed ones."""
    known = {id: (shape, terms, is_on) for id, shape, terms, is_on in fetch(KNOWN)}
    off = [id for id, (_, _, is_on) in known.items() if is_on and id not in switches.by_id]
    changed = [switch for id, switch in switches.by_id.items() if known.get(id) != (switch.shape, switch.terms, True)]
    # Off at this look, or off and on again since the last one, which the database has noted.
    paused = off + [id for id, (_, _, is_on) in known.items() if not is_on and id in switches.by_id]
    for some in _pieces(off):
        execute(OFF, [some])
    for some in _pieces(paused):
        execute(PAUSE, [some])
    for piece in _pieces(changed):
        _turn_on(piece, known)
    expect(switches, set(paused))
    return len(off) + len(changed)


def _turn_on(changed: Sequence[Switch], known: dict[UUID, tuple[str, str, bool]]) -> None:
    reshaped = [switch.id for switch in changed if switch.id in known and known[switch.id][0] != switch.shape]
    execute(FORGET, [reshaped])
    execute_many(ON, [{"id": switch.id, "shape": switch.shape, "terms": switch.terms} for switch in changed])
    moved = [switch for switch in changed if switch.id in known and known[switch.id][1] != switch.terms]
    lengths = [(switch, timedelta() if switch.deadlines else switch.within) for switch in moved if not switch.recurring]
    execute_many(
        MOVE,
        [{"id": switch.id, "length": length + switch.grace, "grace": switch.grace} for switch, length in lengths],
    )
    listed = [switch for switch in changed if switch.recurring]
    execute_many(NOT_EXPECTED, [{"id": switch.id, "keys": list(switch.expected)} for switch in listed])
    _begin([switch for switch in changed if not switch.has_keys and not switch.recurring])


def _begin(switches: Collection[Switch]) -> None:
    """The one timer of a switch without keys waits from the beginning, and also if the event never comes."""
    now, timers = database_now(), rows.read([(switch.id, "") for switch in switches])
    beginning = []
    for switch in switches:
        timer = timers.get((switch.id, "")) or Timer(source_id=switch.id)
        if timer.state == "idle":
            timer.resume(switch, now)
            beginning.append(timer)
    rows.write(beginning)


def expect(switches: Switches, resumed: Collection[UUID] = ()) -> None:
    """Let each recurring deadline expect its keys. Timers may be missing, as those of an erased subject are."""
    recurring = [switch for switch in switches.by_id.values() if switch.recurring]
    if not recurring:
        return
    places = {(switch.id, key): switch for switch in recurring for key in switch.expected}
    now, timers, moved = database_now(), rows.read(places), []
    for (id, key), switch in places.items():
        known = timers.get((id, key))
        timer = replace(known) if known else Timer(source_id=id, key=key)
        timer.expect(switch, now, is_resumed=id in resumed)
        if timer != known:
            moved.append(timer)
    rows.write(moved)


def mend() -> int:
    """The clock was set back: the time of timers that began in what is now the future begins now. Call `expect` or `arm` then."""
    return execute(MEND)


def _pieces(some: Sequence[T]) -> list[Sequence[T]]:
    return [some[start : start + TOGETHER] for start in range(0, len(some), TOGETHER)]
