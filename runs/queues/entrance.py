"""The interface of the queue for dispatch: lock keys, look at their runs, decide, write."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from runs import keys
from runs.db.sql import Query
from runs.enqueue import NewRun, UnstartedRun, enqueue, insertion, join, unstarted
from runs.keys import KeyState
from runs.transitions.stop import lock_runs, replace_others


@dataclass(frozen=True, kw_only=True)
class QueueState:
    """The data for decisions on new runs: the state of each key, and by (key, replay id) the run that events may join."""

    keys: dict[str, KeyState]
    unstarted: dict[tuple[str, UUID], UnstartedRun]


def lock(wanted: Iterable[str], replacing: Collection[str] = ()) -> set[str]:
    """Try to lock the keys until the transaction ends; return those that it got. Skips keys that are locked elsewhere or have a
    run to replace that is locked elsewhere."""
    locked = keys.try_lock(wanted)
    return locked - (set(replacing) - lock_runs(locked & set(replacing)))


def read_queue_state(limits: Mapping[str, int], may_join: Collection[tuple[str, UUID]]) -> QueueState:
    """Read the state of each key, given its limit, in new statements. Call it under the keys' locks."""
    return QueueState(keys=keys.states(limits), unstarted=unstarted(may_join))


def write(
    new: Sequence[NewRun], joined: Iterable[UnstartedRun], replacing: Mapping[str, UUID], free_queue: str | None = None
) -> list[Query]:
    """Insert runs, write the events that join others, and cancel the other live runs of keys (key → the replacing run). Returns what is
    left to execute: the insertion, unless it was needed here. `free_queue`: one in which no run was ready."""
    join(joined)
    if not replacing:
        return [insertion(new, free_queue)] if new else []
    enqueue(new)
    for key, run_id in replacing.items():
        replace_others(key, run_id)
    keys.promote(replacing)
    return []
