"""What a body spends of its budgets: it waits until there is room for a step or for a request to a model, and it may leave a request
to another process, which makes and pays it."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

from agents.exceptions import Permanent
from agents.journal.begun import Begun, current
from agents.journal.budget import Cost, Limits, NoRoom, Refusal, Reserved, Used
from agents.journal.protocol import EXPIRED, BudgetRequest, ModelRequest, Place, fitting
from agents.journal.replay import Replay

# Each request that is left costs one more replay, of all entries up to here: behind so many, a run makes its requests itself.
REPLAYED_AT_MOST = 100
# A request that no process has taken for so many times is made here: where processes live that take none, it costs no more than that.
LEFT_UNTAKEN_AT_MOST = 3
ROOM = "budget"  # name of a wait for room
MODEL = "model"  # name of a wait for a request that is left


class Spending(Replay):
    @property
    def leaves_requests(self) -> bool:
        """Is it better to leave the next request to a model to another process than to make it here?"""
        return self.position < REPLAYED_AT_MOST and self.store.leaves_requests()

    def leave_request(self, begun: Begun, content: Mapping[str, Any], reason: str) -> None:
        """Wait until another process has made the request of this step. A replay is given its answer when it begins the step; where
        it is not, this returns: that process could not make the request, so it is made here. It is left once more after each wait for
        room in a budget, and where no process has taken it."""
        rooms = next(
            number for number in count() if f"{ROOM}:{_key_of_room(begun, number + 1)}" not in self.store.waits
        )
        earlier = range(1, 1 + rooms + LEFT_UNTAKEN_AT_MOST)
        untaken = sum(self._is_untaken(_key_of_left(begun, number)) for number in earlier)
        if untaken == LEFT_UNTAKEN_AT_MOST:
            return
        place = Place(name=MODEL, key=_key_of_left(begun, 1 + rooms + untaken))
        step = {
            "key": begun.key,
            "position": begun.position,
            "is_keyed": begun.is_keyed,
            "effect": begun.request.effect,
            "arguments": begun.arguments,
        }
        self.wait(ModelRequest(place=place, step=step, content=content, reason=reason))

    def _is_untaken(self, key: str) -> bool:
        wait = self.store.waits.get(f"{MODEL}:{key}")
        return wait is not None and wait.is_over and wait.result() is EXPIRED

    def reserve(
        self, cost_of: Callable[[Limits], Cost | None], *, is_spare: bool = False
    ) -> tuple[Reserved | None, Limits]:
        """The last act before a request to a model is sent, within its step. Raises NoRoom, which `fail` makes a wait; a request
        that `is_spare` fails instead of waiting for a person."""
        step = current.get()
        limits = self._look_before_request(step)
        cost = cost_of(limits)
        if cost is None:
            return None, limits
        try:
            reserved = self.store.reserve(self.step_key, cost)
        except Permanent as error:
            raise NoRoom(cost, Refusal(budget="", reason=str(error), is_final=True)) from error
        except Exception as error:
            self._lost(error)
        if isinstance(reserved, Refusal):
            raise NoRoom(cost, replace(reserved, is_final=True) if is_spare and reserved.is_never else reserved)
        return reserved, limits

    def settle(self, reserved: Reserved, used: Used) -> None:
        """The request is over."""
        self.store.settle(reserved, used)

    def _look_before_request(self, step: Begun | None) -> Limits:
        try:
            end = self.store.reason_to_stop()
            limits = self.store.limits()
        except Exception as error:
            self._lost(error)
        if end:
            self._unbegin(step)
            self._stop(end)
        return limits

    def _spend(self, begun: Begun) -> None:
        """Count the call of a tool; wait until there is room for it, as often as that takes."""
        cost = begun.request.cost
        if cost is None:
            return
        for number in count(1):
            refusal = self.store.spend(cost)
            if refusal is None:
                return
            if refusal.is_final:
                raise Permanent(refusal.reason)
            self._wait_for_room(begun, cost, refusal, number)

    def _without_room(self, begun: Begun, error: NoRoom) -> Permanent:
        """The request was not made, so its step has not begun: it begins again once there is room."""
        self._unbegin(begun)
        if error.refusal.is_final:
            return Permanent(error.refusal.reason)
        number = 0
        while True:  # until one of the waits is not over
            number += 1
            self._wait_for_room(begun, error.cost, error.refusal, number)

    def _unbegin(self, step: Begun | None) -> None:
        if step and step.request.effect == "at_most_once":
            try:
                self.store.forget(step.key)
            except Exception as lost:
                self._lost(lost)

    def _wait_for_room(self, begun: Begun, cost: Cost, refusal: Refusal, number: int) -> None:
        place = Place(name=ROOM, key=_key_of_room(begun, number))
        request = BudgetRequest(
            place=place, cost=cost, budget=refusal.budget, reason=refusal.reason, until=refusal.until
        )
        self.wait(request)


def _key_of_left(begun: Begun, number: int) -> str:
    return fitting(begun.key if number == 1 else f"{number} {begun.key}", MODEL)


def _key_of_room(begun: Begun, number: int) -> str:
    return fitting(f"{number} {begun.key}", ROOM)
