"""The store of a trial: a shadow run that calls its models and read-only tools. Other calls and waits end it, as in any
shadow run. Its requests pass the budgets of its agent as those of a run do."""

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from decimal import Decimal
from typing import TypeVar

from django.db import connection

from agents.journal.budget import Cost, Limits, Refusal, Reserved, Used
from agents.journal.ends import Interrupted
from agents.journal.entries import StepEntry
from agents.journal.protocol import StepRequest
from agents.kernel.effects import Effects
from agents.llm.costs.used import used_by
from runs.budgets.reserve import Reservations
from runs.claim import Claim
from runs.db.ready_runs import IS_STOPPED
from runs.db.sql import fetch
from runs.shadow.store import ShadowStore, Stopped, stopped

T = TypeVar("T")
LEASE = timedelta(minutes=3)  # a trial is killed before
# Its session holds the locks of windows that runs wait for: it ends soon where the process of the trial freezes in between.
BOUNDED = """
SELECT set_config('idle_in_transaction_session_timeout', '5s', false), set_config('tcp_user_timeout', '5s', false),
       set_config('lock_timeout', '10s', false)
"""
STOPPED = f"SELECT {IS_STOPPED.format(agent='%s::text')}"  # noqa: S608  (our own parts)


class TrialStore(ShadowStore):
    def __init__(self, claim: Claim) -> None:
        super().__init__(claim, None)
        self.used: Counter[str] = Counter()
        self._reservations = Reservations(claim, lease=LEASE)
        # Its thread has a database session of its own: what the trial spends is not rolled back with it.
        self._thread = ThreadPoolExecutor(1)

    def obstacle(self, key: str, request: StepRequest) -> Stopped | None:
        if request.kind == "model" or request.effect == "read":
            return None
        return super().obstacle(key, request)

    def reason_to_stop(self) -> Interrupted | None:
        [(is_stopped,)] = fetch(STOPPED, [self.agent])
        if not is_stopped:
            return None
        return stopped("agents", "", f"agent {self.agent} is stopped, so no request to a model begins")

    def limits(self) -> Limits:
        return self._beside(self._reservations.limits)

    def reserve(self, key: str, cost: Cost) -> Reserved | Refusal | None:
        return self._beside(lambda: self._reservations.reserve(key, cost))

    def settle(self, reserved: Reserved, used: Used) -> None:
        self._beside(lambda: self._reservations.settle(reserved, used))

    def spend(self, cost: Cost) -> Refusal | None:
        return self._beside(lambda: self._reservations.spend(cost))

    def commit(self, entries: Sequence[StepEntry], effects: Effects, *, at: str) -> bool:
        for entry in entries:
            if entry.kind == "model" and entry.usage:
                used = used_by(entry.usage)
                self.used.update({measure: Decimal(str(amount or 0)) for measure, amount in used.items()})
        return super().commit(entries, effects, at=at)

    def close(self) -> None:
        """A request that is under way counts as it was reserved once its lease ends."""
        self._thread.submit(lambda: connection.close()).result()
        self._thread.shutdown()

    def _beside(self, act: Callable[[], T]) -> T:
        return self._thread.submit(_bounded, act).result()


def _bounded(act: Callable[[], T]) -> T:
    if connection.connection is None:
        fetch(BOUNDED)
    return act()
