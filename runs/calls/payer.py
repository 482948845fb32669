"""What a caller spends of a run's budgets: it reserves the most that a request may cost before it is sent, and settles it after.

The reservation has a lease of its own, longer than a request takes. A caller that dies leaves it, and it is booked as spent, because the
request may have been paid; one that cuts the request ends the lease.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from uuid import UUID

from django.db import Error as DjangoDatabaseError

from agents.exceptions import Permanent, describe
from agents.journal.budget import Cost, Limits, NoRoom, Price, Refusal, Reserved, Unreachable, Used
from runs.budgets import wake
from runs.budgets.reserve import Reservations
from runs.calls.rows import Call
from runs.db.outage import CONNECTION_ERRORS
from runs.exceptions import RunLost

LEASE = timedelta(minutes=15)


class CallPayer:
    def __init__(self, call: Call, caller: UUID) -> None:
        self._reservations = Reservations(call, lease=LEASE, call=(call.wait_id, caller))
        self._key = call.key
        self.prices: Sequence[Price] = ()

    def reserve(
        self, cost_of: Callable[[Limits], Cost | None], *, is_spare: bool = False
    ) -> tuple[Reserved | None, Limits]:
        """NoRoom: the request is not made here, for want of room, or because this caller no longer owns it. Unreachable: the database
        is away."""
        try:
            limits = self._reservations.limits()
            self.prices = limits.prices
            cost = cost_of(limits)
            if cost is None:
                return None, limits
            reserved = self._reserved(cost)
        except CONNECTION_ERRORS as error:
            raise Unreachable(describe(error)) from error
        if isinstance(reserved, Refusal):
            raise NoRoom(cost, reserved)
        return reserved, limits

    def _reserved(self, cost: Cost) -> Reserved | Refusal | None:
        try:
            return self._reservations.reserve(self._key, cost)
        except (Permanent, RunLost) as error:
            raise NoRoom(cost, Refusal(budget="", reason=str(error), is_final=True)) from error

    def settle(self, reserved: Reserved, used: Used) -> None:
        try:
            if self._reservations.settle(reserved, used):
                wake.wake_after_request()
        except DjangoDatabaseError:
            pass  # its lease ends, and it is booked as spent
