"""What the leader does besides dispatching events, in the order in which it is done."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial

from runs.chores import timers
from runs.chores.timers import is_due
from runs.processes.failing import Failing
from triggers.dispatch import batch as dispatch
from triggers.dispatch import failures, offers, replay_pieces
from triggers.dispatch.batch import Batch
from triggers.dispatch.failures import unless_failed
from triggers.dispatch.looks import Seen
from triggers.dispatch.rules import Rules
from triggers.events.order import Horizon

SET_BACK = timedelta(seconds=1)  # of the database's clock, beyond which timers of switches must follow
NEVER = -1


@dataclass(frozen=True, kw_only=True)
class Step:
    """`is_due`: did the looks find work? `do` does it; `failed` is its result if it raises an error."""

    name: str
    is_due: Callable[[Seen], bool]
    do: Callable[[Seen], Batch]
    failed: Batch = Batch()


class Steps:
    def __init__(self, rules: Rules, failing: Failing | None = None) -> None:
        self.rules = rules
        self.failing = failing or Failing()
        self.horizon = Horizon()
        self.windows = failures.windows_that_are_over(rules)
        self.absences = failures.absences(rules)
        self.newest = timers.BEGINNING  # time of the database's clock
        self.armed: int | None = NEVER  # the version of the rules that the timers of switches follow
        self.all: Sequence[Step] = (
            Step(
                name="move offers", is_due=lambda seen: is_due(seen.own.offer), do=lambda _: Batch(ready=offers.move())
            ),
            Step(
                name="advance replays",
                is_due=lambda seen: is_due(seen.own.replay),
                do=lambda _: Batch(ready=replay_pieces.advance(rules, self.horizon)),
            ),
            Step(
                name="close windows",
                is_due=lambda seen: is_due(seen.own.window),
                do=self._close_windows,
                failed=Batch(left=1),
            ),
            Step(name="arm switches", is_due=lambda seen: seen.own.version != self.armed, do=self._arm_switches),
            Step(name="follow the clock", is_due=self._is_set_back, do=self._follow_clock),
            Step(
                name="open switches",
                is_due=lambda seen: is_due(seen.own.absence),
                do=lambda _: self.absences(),
                failed=Batch(left=1),
            ),
        )

    def reconnected(self) -> None:
        self.horizon = Horizon()  # a prepared transaction has another number after a restart of the server
        self.armed = NEVER

    def do(self, seen: Seen, *, leads: bool) -> Batch:
        batch = Batch()
        for step in self.all if leads else ():
            if step.is_due(seen):
                batch += unless_failed(partial(step.do, seen), step.failed, self.failing, step.name)
            else:
                self.failing.succeeded(step.name)
        self.newest = max(self.newest, seen.runs.at)
        return batch

    def are_due(self, seen: Seen) -> bool:
        return any(step.is_due(seen) for step in self.all)

    @property
    def waits(self) -> Sequence[float | None]:
        """The seconds until the next retries of what has failed; None: there is none."""
        return self.windows.wait, self.absences.wait

    def _close_windows(self, seen: Seen) -> Batch:
        closed = self.windows()
        return replace(closed, ready=closed.dispatched)

    def _arm_switches(self, seen: Seen) -> Batch:
        if dispatch.arm_switches(self.rules):
            self.armed = seen.own.version
        return Batch()

    def _is_set_back(self, seen: Seen) -> bool:
        return timers.BEGINNING < seen.runs.at < self.newest - SET_BACK

    def _follow_clock(self, seen: Seen) -> Batch:
        if dispatch.follow_clock(self.rules):
            self.newest = seen.runs.at
        return Batch()
