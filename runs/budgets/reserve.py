"""Reservations: right before a model request, the most that it may cost is reserved in every window of its run's
budgets; right after it, the reservation is settled, each in a short transaction. The claim of the run is the lease of a
reservation: when the claim ends, its open reservations count as spent, because the requests may have been paid. A
trial, which has no run, has a lease of a fixed length. A tool call has a known cost, so it is counted when it
begins.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from secrets import token_hex
from typing import Any, Protocol, TypeVar
from uuid import UUID

from django.conf import settings
from psycopg.types.json import Jsonb

from agents.journal.budget import Cost, Limits, Price, Refusal, Reserved, Used
from runs.budgets.room import Cap, amount_of, refusal_of
from runs.budgets.windows import SPENDS_FOR, caps_of_run, lock, make, spend
from runs.db.session import writing
from runs.db.sql import database_now, fetch
from runs.exceptions import RunLost
from runs.failpoints import failpoint
from runs.models import ModelPrice

LIMITS_STAND = 1.0  # seconds that a run caches limits and prices; amounts are always read
LIMITS = """
WITH of_run AS (
  SELECT coalesce(nullif(%(trigger)s::text, ''), (SELECT {spends_for} FROM runs_run run WHERE run.id = %(run)s::uuid), '') AS trigger
)
SELECT ARRAY(
  SELECT DISTINCT measure FROM runs_budget budget
  WHERE cap IS NOT NULL AND (scope = 'installation' OR (scope = 'agent' AND name = %(agent)s::text)
    OR (scope = 'trigger' AND name = of_run.trigger))),
  EXISTS (SELECT FROM runs_modelprice), of_run.trigger
FROM of_run
""".replace("{spends_for}", SPENDS_FOR)
# A measure that the response does not report counts as reserved.
SETTLE = """
WITH gone AS (
  DELETE FROM runs_reservation WHERE id = ANY(%(ids)s::bigint[]) RETURNING window_id, amount
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
# The fence is part of the last statement, as everywhere. A trial has no fence: it has a lease of its own.
FENCED = """
  SELECT id FROM runs_run
  WHERE id = %(run)s::uuid AND epoch = %(epoch)s::int AND claim = %(claim)s::uuid AND coalesce(status, '') = 'running'
  FOR NO KEY UPDATE
"""
RESERVE = """
WITH fenced AS MATERIALIZED ({fenced}), kept AS (
  INSERT INTO runs_reservation (window_id, run_id, key, claim, amount, expires_at)
  SELECT asked.window_id, fenced.id, %(key)s::text, %(claim)s::uuid, asked.amount, clock_timestamp() + %(lease)s::interval
  FROM fenced, unnest(%(windows)s::bigint[], %(amounts)s::numeric[]) AS asked(window_id, amount)
  RETURNING id, window_id, amount
), counted AS (
  UPDATE runs_budgetwindow win SET reserved = win.reserved + kept.amount FROM kept WHERE win.id = kept.window_id
)
SELECT id FROM kept
"""
RESERVE_OF_RUN = RESERVE.replace("{fenced}", FENCED)
RESERVE_OF_TRIAL = RESERVE.replace("{fenced}", "SELECT %(run)s::uuid AS id")
# A request that a caller makes for a waiting run: the caller has to own it.
RESERVE_OF_CALL = RESERVE.replace(
    "{fenced}",
    """
  SELECT wait.run_id AS id FROM runs_modelcall call JOIN runs_wait wait ON wait.id = call.wait_id
  WHERE call.wait_id = %(wait)s::bigint AND call.owner_id = %(owner)s::uuid AND wait.status = 'open'
  FOR NO KEY UPDATE OF call
""",
)
T = TypeVar("T")
Asked = Sequence[tuple[Cap, Decimal]]


class Payer(Protocol):
    """What reservations need to know of a claim, or of a request that a caller makes for a run."""

    @property
    def run_id(self) -> UUID: ...
    @property
    def epoch(self) -> int: ...
    @property
    def id(self) -> UUID | None: ...
    @property
    def agent(self) -> str: ...
    @property
    def trigger(self) -> str: ...


class Reservations:
    """The reservations and counts of one claim. `lease`: how long a request of a trial, or of a caller, may take. `call`: the wait
    whose request a caller makes, and the caller."""

    def __init__(self, claim: Payer, *, lease: timedelta | None = None, call: tuple[int, UUID] | None = None) -> None:
        self._claim = claim
        self._lease = lease
        self._call = call
        self._trigger = claim.trigger
        self._limits = Limits()
        self._limits_until = 0.0

    def limits(self) -> Limits:
        if time.monotonic() >= self._limits_until:
            given = {"run": self._claim.run_id, "agent": self._claim.agent, "trigger": self._claim.trigger}
            [(measures, has_prices, self._trigger)] = fetch(LIMITS, given)
            self._limits = Limits(measures=frozenset(measures), prices=prices() if has_prices else ())
            self._limits_until = time.monotonic() + LIMITS_STAND
        return self._limits

    def reserve(self, key: str, cost: Cost) -> Reserved | Refusal | None:
        """Reserve the cost of a request of this step, or return why no budget has room for it. RunLost: another process
        owns the run.
        """
        failpoint("before_reserve")
        reserved = self._if_room(cost, lambda asked: self._keep(key, asked))
        if isinstance(reserved, Reserved):
            failpoint("after_reserve")
        return reserved

    def settle(self, reserved: Reserved, used: Used) -> bool:
        """Book the actual cost of the request and release the rest. Return whether budget was released."""
        failpoint("before_settle")
        with writing():
            lock(reserved.windows)
            found = fetch(SETTLE, {"ids": list(reserved.ids), "used": Jsonb(used)})
        return any(freed for (freed,) in found)

    def spend(self, cost: Cost) -> Refusal | None:
        """Count a tool call, or return why no budget has room for it."""
        return self._if_room(
            cost, lambda asked: spend([(cap.id, amount) for cap, amount in asked if cap.id is not None])
        )

    def _if_room(self, cost: Cost, take: Callable[[Asked], T]) -> T | Refusal | None:
        """Take the cost from the locked windows, or return why they have no room. None: no budget applies."""
        while True:
            caps = self._caps(cost)
            if not caps:
                return None
            with writing():
                asked = self._locked(cost, caps)
                if asked is not None:
                    return refusal_of(asked) or take(asked)

    def _locked(self, cost: Cost, caps: Sequence[Cap]) -> Asked | None:
        """The locked windows, and the amount requested of each. None: a window had to be created first, or a new one
        has begun since.
        """
        if missing := [cap for cap in caps if cap.id is None]:
            make([self._of_trial(cap) for cap in missing] if self._is_trial else missing)
            return None
        lock(cap.id for cap in caps if cap.id is not None)
        now = self._caps(cost)
        if {cap.id for cap in now} - {cap.id for cap in caps}:
            return None
        return [(cap, self._amount(cost, cap)) for cap in now]

    @property
    def _is_trial(self) -> bool:
        return self._lease is not None and self._call is None

    def _of_trial(self, cap: Cap) -> Cap:
        """The windows of a trial: its per-run window, which has no run, is kept as long as a daily one."""
        return cap if cap.ends_at else replace(cap, ends_at=database_now())

    def _caps(self, cost: Cost) -> list[Cap]:
        used = [measure for measure in ("tokens", "requests", "tool_calls") if getattr(cost, measure)]
        measures = [*used, "usd"] if cost.usd is None or cost.usd else used
        return caps_of_run(self._claim.run_id, self._claim.agent, self._trigger, measures)

    def _amount(self, cost: Cost, cap: Cap) -> Decimal:
        return amount_of(cost, cap.measure, allows_unpriced=settings.WAKEFUL_UNPRICED == "allow")

    def _keep(self, key: str, asked: Asked) -> Reserved:
        windows = [cap.id for cap, _ in asked if cap.id is not None]
        given: dict[str, Any] = {
            "run": self._claim.run_id,
            "epoch": self._claim.epoch,
            "claim": self._claim.id,
            "key": f"{key} {token_hex(4)}",  # a step may make several requests
            "windows": windows,
            "amounts": [amount for _, amount in asked],
            "lease": self._lease,
        }
        if self._call is not None:
            given |= {"wait": self._call[0], "owner": self._call[1]}
        statement = RESERVE_OF_TRIAL if self._is_trial else RESERVE_OF_CALL if self._call else RESERVE_OF_RUN
        kept = fetch(statement, given)
        if not kept:
            raise RunLost(f"run {self._claim.run_id} left epoch {self._claim.epoch}")
        return Reserved(ids=[id for (id,) in kept], windows=windows)


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
