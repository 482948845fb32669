"""The dispatcher's look: one statement that finds out what there is to do, in `triggers` and in `runs`. It needs no lead."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import timedelta
from typing import Any

from runs.chores import rare, timers
from runs.chores.rare import Rare
from runs.chores.timers import Ask
from runs.db.sql import fetch_as
from runs.queues.courier import Courier
from triggers.dispatch import failures, offers, replay_pieces
from triggers.dispatch.promise import LISTEN, listens_for
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
# Beside them, once in a safety look: what there seldom is. It also notes that this dispatcher listens.
RARE = f"""
SELECT rare.*, {{couriers}} AS couriers,
  CASE WHEN %(listens)s::boolean THEN {LISTEN.replace("%s", "%(listens_for)s")} END IS NOT NULL AS is_noted
FROM ({rare.ASK}) rare
"""  # noqa: S608  (our own parts)
BESIDE = "SELECT own.*, rare.* FROM ({look}) own CROSS JOIN ({rare}) rare"


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
    """What a look has found: the work of `triggers`, and that of `runs`. If it was wide: the names of couriers that have work, and
    whether it has noted that this dispatcher listens."""

    own: DispatchTimers
    runs: timers.RunTimers
    couriers: Collection[str] = ()
    is_noted: bool = False


@dataclass(frozen=True, kw_only=True)
class Wide:
    """Lets a look ask for what is rare, through `ask`, also for the work of these couriers. `listens`: note that this dispatcher
    listens."""

    ask: Ask = fetch_as
    couriers: Iterable[type[Courier]] = ()
    listens: bool = False

    @property
    def statement(self) -> str:
        works = [f"CASE WHEN {kind.has_work} THEN '{kind.name_of}' END" for kind in self.couriers if kind.has_work]
        return RARE.replace("{couriers}", f"array_remove(ARRAY[{', '.join(works)}]::text[], NULL)")

    @property
    def parameters(self) -> dict[str, Any]:
        return {"listens": self.listens, "listens_for": listens_for()}

    @property
    def everything(self) -> Mapping[str, Any]:
        """Its answer where it cannot be read."""
        return {**asdict(Rare()), "couriers": [kind.name_of for kind in self.couriers], "is_noted": False}


class Looks:
    """Reads the halves of a look, and what is rare, in one statement; one by one while they fail together, so that a table that is locked
    stops the work of its part alone."""

    def __init__(self) -> None:
        self.are_apart = False
        self.is_rare_apart = False

    def look(self, *, asks_for_events: bool, wide: Wide | None = None) -> Seen:
        """Where work of `runs`, or what is rare, cannot be read, all of it is tried; where that of `triggers` cannot, events are
        dispatched, and its timers wait until they can be read."""
        beside = None if self.is_rare_apart else wide
        seen = None if self.are_apart else failures.unless_failed(lambda: look(asks_for_events, beside), None)
        if seen is None:
            own = failures.unless_failed(lambda: read_dispatch_timers(asks_for_events=asks_for_events), None)
            runs = failures.unless_failed(timers.read_run_timers, None)
            self.are_apart = own is None or runs is None
            seen = Seen(own=own or DispatchTimers(), runs=replace(runs or timers.everything_is_due(), rare=None))
        if wide is None or seen.runs.rare is not None:
            return seen
        found = failures.unless_failed(lambda: wide.ask(dict, wide.statement, wide.parameters), None)
        self.is_rare_apart = found is None
        return with_rare(seen, found[0] if found else wide.everything)


def look(asks_for_events: bool, wide: Wide | None = None) -> Seen:
    if wide is None:
        runs, own = timers.read_beside(LOOK, parameters(asks_for_events))
        return Seen(own=DispatchTimers(**own), runs=runs)
    given = {**parameters(asks_for_events), **wide.parameters}
    runs, row = timers.read_beside(BESIDE.format(look=LOOK, rare=wide.statement), given, wide.ask)
    own = {each.name: row.pop(each.name) for each in fields(DispatchTimers)}
    return with_rare(Seen(own=DispatchTimers(**own), runs=runs), row)


def with_rare(seen: Seen, row: Mapping[str, Any]) -> Seen:
    found = Rare(**{each.name: row[each.name] for each in fields(Rare)})
    runs = replace(seen.runs, rare=found)
    return replace(seen, runs=runs, couriers=row["couriers"], is_noted=row["is_noted"])


def read_dispatch_timers(*, asks_for_events: bool = True) -> DispatchTimers:
    [found] = fetch_as(DispatchTimers, LOOK, parameters(asks_for_events))
    return found


def parameters(asks_for_events: bool) -> dict[str, bool]:
    # While it is slow to find them, dispatch does it, once.
    return {"asks_for_events": asks_for_events and pending.first.hint() is None}
