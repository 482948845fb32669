"""The store of a trial: a shadow run that asks its models and makes calls that only read. Other calls and waits end it, as in any
shadow run. What it spends counts in the budgets of its agent."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

from django.conf import settings
from django.db import transaction

from agents.effects import Effects
from agents.journal.budget import Cost, Limits, Refusal
from agents.journal.entries import StepEntry
from agents.journal.protocol import StepRequest
from runs.budgets.reserve import Reservations, used_by
from runs.budgets.room import amount_of, refusal_of
from runs.budgets.windows import caps_of_run, lock, make, spend
from runs.claim import Claim
from runs.shadow.store import ShadowStore, Stopped

MEASURES = ("usd", "tokens", "requests", "tool_calls")


class TrialStore(ShadowStore):
    def __init__(self, claim: Claim) -> None:
        super().__init__(claim, None)
        self.used: Counter[str] = Counter()
        self._limits = Reservations(claim)

    def obstacle(self, key: str, request: StepRequest) -> Stopped | None:
        if request.kind == "model" or request.effect == "read":
            return None
        return super().obstacle(key, request)

    @property
    def known_limits(self) -> Limits | None:
        return self._limits.known_limits

    def limits(self) -> Limits:
        return self._limits.limits()

    def reserve(self, key: str, cost: Cost) -> Refusal | None:
        caps = caps_of_run(self.claim.run_id, self.agent, self.claim.trigger, MEASURES)
        caps = [replace(cap, spent=cap.spent + self.used[cap.measure]) for cap in caps]
        allows = settings.WAKEFUL_UNPRICED == "allow"
        return refusal_of([(cap, amount_of(cost, cap.measure, allows_unpriced=allows)) for cap in caps])

    def commit(self, entries: Sequence[StepEntry], effects: Effects, *, at: str) -> bool:
        for entry in entries:
            if entry.kind in ("model", "tool") and entry.status != "started":
                self.used.update({measure: Decimal(str(used or 0)) for measure, used in used_by(entry).items()})
        return super().commit(entries, effects, at=at)

    def settle(self) -> None:
        """Count what the trial used, after its transaction is rolled back."""
        with transaction.atomic():
            caps = caps_of_run(self.claim.run_id, self.agent, self.claim.trigger, MEASURES)
            make([cap for cap in caps if cap.id is None and cap.period != "run"])
            windows = [
                (cap.id, Decimal(self.used[cap.measure]))
                for cap in caps_of_run(self.claim.run_id, self.agent, self.claim.trigger, MEASURES)
                if cap.id is not None and cap.period != "run"
            ]
            lock(window for window, _ in windows)
            spend(windows)
