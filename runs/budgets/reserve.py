"""The most that a step may cost is set aside in every window of its run's budgets before it begins, and settled in the commit
of its entry. What a claim that is over had set aside counts as spent: its request may have been paid."""

import time
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from django.conf import settings
from psycopg.types.json import Jsonb

from agents.journal.budget import Cost, Limits, Price, Refusal
from agents.journal.entries import StepEntry
from runs.budgets.room import Cap, amount_of, refusal_of
from runs.budgets.windows import caps_of_run, lock, make
from runs.claim import Claim
from runs.db.session import writing
from runs.db.sql import execute, fetch
from runs.exceptions import RunLost
from runs.failpoints import failpoint
from runs.models import ModelPrice

LIMITS_STAND = 1.0  # seconds that a run goes by the limits and prices it has read; amounts are always read
LIMITS = """
SELECT ARRAY(
  SELECT DISTINCT measure FROM runs_budget budget
  WHERE cap IS NOT NULL AND (scope = 'installation' OR (scope = 'agent' AND name = %(agent)s::text)
    OR (scope = 'trigger' AND name = %(trigger)s::text))),
  EXISTS (SELECT FROM runs_modelprice)
"""
LEFT_OVER = """
SELECT window_id FROM runs_reservation
WHERE run_id = %(run)s::uuid AND (key = %(key)s::text OR claim <> %(claim)s::uuid)
"""
OF_KEY = """
SELECT window_id FROM runs_reservation WHERE run_id = %(run)s::uuid AND key = %(key)s::text AND claim = %(claim)s::uuid
"""
# What is not said of the use counts as it was reserved.
SETTLE = """
WITH gone AS (
  DELETE FROM runs_reservation WHERE {which} RETURNING window_id, amount
), settled AS (
  SELECT gone.window_id, sum(gone.amount) AS reserved,
    sum(coalesce((%(used)s::jsonb->>budget.measure)::numeric, gone.amount)) AS spent
  FROM gone JOIN runs_budgetwindow win ON win.id = gone.window_id JOIN runs_budget budget ON budget.id = win.budget_id
  GROUP BY gone.window_id
)
UPDATE runs_budgetwindow win SET reserved = win.reserved - settled.reserved, spent = win.spent + settled.spent
FROM settled WHERE win.id = settled.window_id
RETURNING settled.spent < settled.reserved
"""
SETTLE_LEFT_OVER = SETTLE.replace(
    "{which}", "run_id = %(run)s::uuid AND (key = %(key)s::text OR claim <> %(claim)s::uuid)"
)
SETTLE_KEY = SETTLE.replace("{which}", "run_id = %(run)s::uuid AND key = %(key)s::text AND claim = %(claim)s::uuid")
# The fence stands in the last statement, as everywhere.
RESERVE = """
WITH fenced AS MATERIALIZED (
  SELECT id FROM runs_run
  WHERE id = %(run)s::uuid AND epoch = %(epoch)s::int AND claim = %(claim)s::uuid AND coalesce(status, '') = 'running'
  FOR NO KEY UPDATE
), kept AS (
  INSERT INTO runs_reservation (window_id, run_id, key, claim, amount)
  SELECT asked.window_id, fenced.id, %(key)s::text, %(claim)s::uuid, asked.amount
  FROM fenced, unnest(%(windows)s::bigint[], %(amounts)s::numeric[]) AS asked(window_id, amount)
  RETURNING window_id, amount
)
UPDATE runs_budgetwindow win SET reserved = win.reserved + kept.amount FROM kept WHERE win.id = kept.window_id
"""
NOTHING = {"usd": "0", "tokens": 0, "requests": 0, "tool_calls": 0}


class Reservations:
    """What one claim sets aside for its steps."""

    def __init__(self, claim: Claim) -> None:
        self._claim = claim
        self._limits = Limits()
        self._limits_until = 0.0
        self._keys: set[str] = set()

    @property
    def known_limits(self) -> Limits | None:
        """None: they are to be read again."""
        return self._limits if time.monotonic() < self._limits_until else None

    def limits(self) -> Limits:
        if self.known_limits is None:
            given = {"agent": self._claim.agent, "trigger": self._claim.trigger}
            [(measures, has_prices)] = fetch(LIMITS, given)
            self._limits = Limits(measures=frozenset(measures), prices=prices() if has_prices else ())
            self._limits_until = time.monotonic() + LIMITS_STAND
        return self._limits

    def reserve(self, key: str, cost: Cost) -> Refusal | None:
        """Set the cost aside, or say why there is no room for it. RunLost: another process owns the run."""
        failpoint("before_reserve")
        while True:
            caps = self._caps(cost)
            if missing := [cap for cap in caps if cap.id is None]:
                with writing():
                    make(missing)
                continue
            if not caps:
                return None
            with writing():
                self._settle_left_over(key, caps)
                # As they stand under their locks. A window may have turned since.
                now = self._caps(cost)
                if {cap.id for cap in now} - {cap.id for cap in caps}:
                    continue
                asked = [(cap, self._amount(cost, cap)) for cap in now]
                if refusal := refusal_of(asked):
                    return refusal
                self._keep(key, asked)
            self._keys.add(key)
            failpoint("after_reserve")
            return None

    def settle(self, entries: Sequence[StepEntry]) -> bool:
        """In the transaction of these entries, before the fence: what steps did cost is spent, the rest is free again. Is
        there any?"""
        freed = [self._settle(entry.key, used_by(entry)) for entry in entries if entry.key in self._keys]
        return any(freed)

    def give_back(self, key: str) -> bool:
        """The step failed at no cost. Is there room now for others?"""
        if key not in self._keys:
            return False
        with writing():
            freed = self._settle(key, NOTHING)
        self._keys.discard(key)
        return freed

    def forget(self, entries: Sequence[StepEntry]) -> None:
        """They are committed."""
        self._keys.difference_update(entry.key for entry in entries)

    def _caps(self, cost: Cost) -> list[Cap]:
        used = [measure for measure in ("tokens", "requests", "tool_calls") if getattr(cost, measure)]
        measures = [*used, "usd"] if cost.usd is None or cost.usd else used
        return caps_of_run(self._claim.run_id, self._claim.agent, self._claim.trigger, measures)

    def _amount(self, cost: Cost, cap: Cap) -> Decimal:
        return amount_of(cost, cap.measure, allows_unpriced=settings.WAKEFUL_UNPRICED == "allow")

    def _given(self, key: str) -> dict[str, Any]:
        return {"run": self._claim.run_id, "key": key, "claim": self._claim.id}

    def _settle_left_over(self, key: str, caps: list[Cap]) -> None:
        """Lock the windows; what earlier tries of the step, or earlier claims of the run, had reserved counts as spent."""
        left = [window for (window,) in fetch(LEFT_OVER, self._given(key))]
        lock([*left, *(cap.id for cap in caps if cap.id is not None)])
        if left:
            fetch(SETTLE_LEFT_OVER, {**self._given(key), "used": None})

    def _settle(self, key: str, used: dict[str, Any]) -> bool:
        lock(window for (window,) in fetch(OF_KEY, self._given(key)))
        return any(freed for (freed,) in fetch(SETTLE_KEY, {**self._given(key), "used": Jsonb(used)}))

    def _keep(self, key: str, asked: list[tuple[Cap, Decimal]]) -> None:
        given = {
            **self._given(key),
            "epoch": self._claim.epoch,
            "windows": [cap.id for cap, _ in asked],
            "amounts": [amount for _, amount in asked],
        }
        if not execute(RESERVE, given):
            raise RunLost(f"run {self._claim.run_id} left epoch {self._claim.epoch}")


def used_by(entry: StepEntry) -> dict[str, Any]:
    """What a step used; what is left out is not known."""
    if entry.kind == "tool":
        return {**NOTHING, "tool_calls": 1}
    if not entry.usage:
        return {}
    if entry.usage.get("may_be_more"):
        return {"requests": 1, "tool_calls": 0}
    measured = entry.usage.get("is_measured", True)
    tokens = entry.usage["input_tokens"] + entry.usage["output_tokens"]
    return {"usd": entry.usage["cost"], "tokens": tokens if measured else None, "requests": 1, "tool_calls": 0}


def prices() -> tuple[Price, ...]:
    return tuple(
        Price(
            model=row.model,
            input=row.input,
            output=row.output,
            cache_read=row.input if row.cache_read is None else row.cache_read,
            cache_write=row.input if row.cache_write is None else row.cache_write,
        )
        for row in ModelPrice.objects.all()
    )
