"""The front door of the queue for dispatch: lock the keys, look at what they hold, decide, write."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from uuid import UUID

from runs import keys
from runs.enqueue import NewRun, UnstartedRun, enqueue, join, unstarted
from runs.keys import KeyState
from runs.transitions.stop import lock_runs, replace_others


@dataclass(frozen=True, kw_only=True)
class QueueState:
    """What a decision on new runs needs to know: each key's state, and by (key, replay id) the run that may take events along."""

    keys: dict[str, KeyState]
    unstarted: dict[tuple[str, UUID], UnstartedRun]


def lock(wanted: Iterable[str], replacing: Collection[str] = ()) -> set[str]:
    """Try to lock the keys until the transaction ends; skip keys that are locked elsewhere, and of those whose runs are to be
    replaced the ones with a run that is locked elsewhere."""
    locked = keys.try_lock(wanted)
    return locked - (set(replacing) - lock_runs(locked & set(replacing)))


def look(limits: Mapping[str, int], may_join: Collection[tuple[str, UUID]]) -> QueueState:
    """Read the state of each key, given its limit, in statements of their own, under the keys' locks."""
    return QueueState(keys=keys.states(limits), unstarted=unstarted(may_join))


def write(new: Collection[NewRun], joined: Iterable[UnstartedRun], replacing: Mapping[str, UUID]) -> None:
    """Insert runs, write what others take along, and cancel the other live runs of keys (key → the run that replaces them)."""
    enqueue(list(new))
    join(joined)
    for key, run_id in replacing.items():
        replace_others(key, run_id)
    keys.promote(replacing)
