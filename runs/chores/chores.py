"""The dispatcher's work for `runs`, in the order in which it is done."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from runs import outbox, waits
from runs.budgets import wake
from runs.calls import rows as calls
from runs.chores import timers
from runs.chores.rare import Rare
from runs.chores.timers import RunTimers, is_due
from runs.durable import sessions
from runs.failpoints import failpoint
from runs.incidents.tell import tell_due
from runs.processes.rescue import Rescuer
from runs.waits import Woken

BATCH = 500
MEND_EVERY = 60.0  # seconds


@dataclass(frozen=True, kw_only=True)
class Chore:
    """A chore of the dispatcher. `is_due`: did a look find work? `do` does it and returns the runs that it may have made ready."""

    name: str
    is_due: Callable[[RunTimers], bool]
    do: Callable[[RunTimers], Woken]


class Chores:
    def __init__(self) -> None:
        self.rescuer = Rescuer()
        self.stalled = timers.StalledKeys()
        self.mend_at = 0.0
        self.budget_waits = wake.Round()

    def __iter__(self) -> Iterator[Chore]:
        yield Chore(name="end waits", is_due=lambda found: is_due(found.wait), do=lambda _: waits.end_due(BATCH))
        yield Chore(
            name="look back", is_due=lambda found: is_due(found.look_back), do=lambda _: Woken(runs=waits.look_back())
        )
        yield Chore(name="wake runs", is_due=lambda found: is_due(found.due), do=self._wake)
        yield Chore(name="mend keys", is_due=lambda found: _is_rare(found, "blocked") and self._mends, do=self._mend)
        yield Chore(
            name="hand over sessions",
            is_due=lambda found: found.free_session,
            do=lambda _: Woken(runs=sessions.hand_over_free()),
        )
        yield Chore(
            name="budgets", is_due=lambda found: _is_rare(found, "budget_waits", "reservations"), do=self._budgets
        )
        yield Chore(
            name="hand back requests",
            is_due=lambda found: _is_rare(found, "requests"),
            do=lambda _: Woken(runs=calls.hand_back_abandoned()),
        )
        yield Chore(name="tell incidents", is_due=lambda found: _is_rare(found, "incidents"), do=self._tell_incidents)
        yield Chore(name="deliver messages", is_due=lambda found: bool(_topics(found)), do=self._deliver)
        yield Chore(
            name="rescue runs",
            is_due=lambda found: found.lost or is_due(found.lease_expiry),
            do=lambda _: Woken(runs=self.rescuer.rescue()),
        )

    def reconnected(self) -> None:
        """The database was away: give processes time to renew their leases."""
        self.rescuer.reconnected()

    def begin_pass(self) -> None:
        self.rescuer.begin_pass()

    def end_pass(self, wait: float) -> None:
        self.rescuer.end_pass(wait)

    def _wake(self, found: RunTimers) -> Woken:
        failpoint("before_wake")
        woken = timers.wake_due(BATCH)
        failpoint("after_wake")
        return Woken(runs=woken)

    @property
    def _mends(self) -> bool:
        return time.monotonic() >= self.mend_at

    def _mend(self, found: RunTimers) -> Woken:
        self.mend_at = time.monotonic() + MEND_EVERY
        return Woken(runs=self.stalled.mend())

    def _budgets(self, found: RunTimers) -> Woken:
        rare = found.rare or Rare()
        return Woken(runs=self.budget_waits.chore(is_awaited=rare.budget_waits, is_reserved=rare.reservations))

    def _tell_incidents(self, found: RunTimers) -> Woken:
        tell_due()
        return Woken()

    def _deliver(self, found: RunTimers) -> Woken:
        return Woken(runs=outbox.deliver_inside(BATCH, _topics(found)))


def _topics(found: RunTimers) -> list[str]:
    """The topics with due messages that the dispatcher handles in its own transaction."""
    return [topic for topic, wait in found.inside.items() if is_due(wait)]


def _is_rare(found: RunTimers, *work: str) -> bool:
    """Was there some work of these at a look that asked for it?"""
    return found.rare is not None and any(getattr(found.rare, name) for name in work)
