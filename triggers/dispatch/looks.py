"""The dispatcher's look: one statement that finds out what there is to do, in `triggers` and in `runs`. It needs no lead."""

from dataclasses import dataclass
from datetime import timedelta

from runs.chores import timers
from runs.db.sql import fetch_as
from triggers.dispatch import failures, offers, replay_pieces
from triggers.matching import pending
from triggers.switches import fire

LOOK = f"""
SELECT (SELECT min(due_at) FROM triggers_window) - clock_timestamp() AS "window", ({offers.NEXT_DUE}) AS offer,
  ({replay_pieces.NEXT_DUE}) AS replay,
  (SELECT min(due_at) FROM triggers_eventdelivery WHERE status IN ('pending', 'sending')) - clock_timestamp() AS outbound,
  ({fire.NEXT_DUE}) AS absence, (SELECT max(version) FROM triggers_rulesversion) AS version,
  CASE WHEN %(asks_for_events)s::boolean THEN EXISTS (SELECT FROM triggers_event WHERE dispatched_at IS NULL)
    OR EXISTS (SELECT FROM triggers_redispatch WHERE dispatched_at IS NULL) ELSE true END AS has_events
"""  # noqa: S608  (our own parts)


@dataclass(frozen=True, kw_only=True)
class DispatchTimers:
    """The time until the next window is over, the next offer and the next piece of a replay are due, the next event leaves to a
    subscription and the next timer of a switch is due (negative: now; None: there is none); the version of the rules; and whether
    there may be events to dispatch."""

    window: timedelta | None = None
    offer: timedelta | None = None
    replay: timedelta | None = None
    outbound: timedelta | None = None
    absence: timedelta | None = None
    version: int | None = None
    has_events: bool = True


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a look has found: the work of `triggers`, and that of `runs`."""

    own: DispatchTimers
    runs: timers.RunTimers


class Looks:
    """`are_apart`: the two halves are read one by one, because together they failed. A table that is locked stops the work of one half."""

    def __init__(self) -> None:
        self.are_apart = False

    def look(self, *, asks_for_events: bool) -> Seen:
        """Of a half that cannot be read, all work is tried."""
        if not self.are_apart:
            seen = failures.unless_failed(lambda: look(asks_for_events=asks_for_events), None)
            if seen is not None:
                return seen
        own = failures.unless_failed(lambda: read_dispatch_timers(asks_for_events=asks_for_events), None)
        runs = failures.unless_failed(timers.read_run_timers, None)
        self.are_apart = own is None or runs is None
        return Seen(own=own or DispatchTimers(), runs=runs or timers.everything_is_due())


def look(*, asks_for_events: bool) -> Seen:
    runs, own = timers.read_beside(LOOK, parameters(asks_for_events))
    return Seen(own=DispatchTimers(**own), runs=runs)


def read_dispatch_timers(*, asks_for_events: bool = True) -> DispatchTimers:
    [found] = fetch_as(DispatchTimers, LOOK, parameters(asks_for_events))
    return found


def parameters(asks_for_events: bool) -> dict[str, bool]:
    # While it is slow to find them, dispatch does it, once.
    return {"asks_for_events": asks_for_events and pending.first.hint() is None}
