"""Runs that wait for budget go on once there is room for their step, or once they fail for want of it. Each commits its wait
first and looks for room then; a transaction that makes room commits first and then looks for waits: neither misses the
other. The dispatcher checks all waits in turn, to finish work left by a crash or by other processes that had no
time."""

import time
from collections import defaultdict
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db import transaction

from agents.journal.protocol import BudgetRequest
from runs import waits
from runs.budgets.reserve import SETTLE
from runs.budgets.windows import SPENDS_FOR, lock
from runs.db.session import writing
from runs.db.sql import fetch, fetch_as, fetch_column
from runs.models import NIL

PAGE = 1_000  # waits per query
LOOK = 0.25  # most seconds of one pass
AFTER_A_REQUEST = 200  # waits that the run checks whose request has left room
# Each wait with the budgets that apply to its run; one row without a budget where none does any more.
WAITING = """
SELECT wait.id, run.id AS run_id, budget.id AS budget, turn.run_id AS of_run,
  budget.cap + coalesce(win.extra - win.spent - win.reserved, 0) AS room, asked.amount,
  coalesce(budget.at_cap = 'fail' AND coalesce(win.spent, 0) + asked.amount > budget.cap + coalesce(win.extra, 0), false) AS is_final
FROM (
  SELECT id, run_id, asked FROM runs_wait WHERE status = 'open' AND kind = 'budget' AND {which} ORDER BY id LIMIT %(most)s::int) wait
JOIN runs_run run ON run.id = wait.run_id
LEFT JOIN runs_budget budget ON budget.cap IS NOT NULL AND coalesce((wait.asked->>budget.measure)::numeric > 0, true)
  AND (budget.scope = 'installation' OR (budget.scope = 'agent' AND budget.name = run.agent)
    OR (budget.scope = 'trigger' AND budget.name = {spends_for}))
CROSS JOIN LATERAL (SELECT coalesce((wait.asked->>budget.measure)::numeric, 0) AS amount) asked
LEFT JOIN LATERAL (SELECT
  CASE budget.period WHEN 'run' THEN timestamptz 'epoch' ELSE date_trunc(budget.period, clock_timestamp(), 'UTC') END AS starts_at,
  CASE budget.period WHEN 'run' THEN run.id ELSE %(nil)s::uuid END AS run_id) turn ON budget.id IS NOT NULL
LEFT JOIN runs_budgetwindow win
  ON win.budget_id = budget.id AND win.run_id = turn.run_id AND win.starts_at = turn.starts_at
ORDER BY wait.id
""".replace("{spends_for}", SPENDS_FOR)
ALL = WAITING.replace("{which}", "id > %(after)s::bigint")
OF_RUN = WAITING.replace("{which}", "run_id = %(run)s::uuid")
AT_PRICE_OF = """
SELECT id FROM runs_wait
WHERE status = 'open' AND kind = 'budget' AND strpos(asked->>'model', %(model)s::text) > 0 AND id > %(after)s::bigint
ORDER BY id LIMIT %(most)s::int
"""
LOST = """
SELECT reservation.id, reservation.window_id FROM runs_reservation reservation
LEFT JOIN runs_run run ON run.id = reservation.run_id
WHERE CASE WHEN reservation.expires_at IS NULL
  THEN run.id IS NULL OR run.status <> 'running' OR run.claim IS DISTINCT FROM reservation.claim
  ELSE reservation.expires_at < clock_timestamp() END
ORDER BY reservation.id LIMIT %(most)s::int
"""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The amount that a waiting run requests of a budget, the room in that budget, and whether the run fails without
    it.
    """

    id: int
    run_id: UUID
    budget: int | None
    of_run: UUID | None
    room: Decimal | None
    amount: Decimal
    is_final: bool


ByWait = dict[int, list[Asked]]
Room = dict[tuple[int, UUID | None], Decimal]  # the remaining amount in the window of a budget or run


def asked_of(request: BudgetRequest) -> dict[str, Any]:
    """The request that a wait for budget stores."""
    cost = request.cost
    return {
        "budget": request.budget,
        "reason": request.reason,
        "usd": None if cost.usd is None else f"{cost.usd:f}",
        "tokens": cost.tokens,
        "requests": cost.requests,
        "tool_calls": cost.tool_calls,
        "model": cost.model,
    }


class Round:
    """Goes through the waits from the oldest on and ends those for which there is room. A look that is out of time leaves the
    rest to the next one, so each wait has its turn however many there are."""

    def __init__(self) -> None:
        self._after = 0

    def wake_waiting(self) -> int:
        """Run one pass; return how many waits ended."""
        until = time.monotonic() + LOOK
        room: Room = {}
        ended = 0
        while True:
            page = _asked(ALL, after=self._after, most=PAGE)
            ended += _end_fitting(page, room)
            self._after = max(page) if len(page) == PAGE else 0
            if not self._after or time.monotonic() >= until:
                return ended

    def chore(self, *, is_awaited: bool = True, is_reserved: bool = True) -> int:
        """Run the dispatcher's pass; return how many runs continue. `is_awaited`: some may wait; `is_reserved`: there may be
        reservations."""
        if is_reserved:
            settle_lost()
        return self.wake_waiting() if is_awaited else 0


def wake_waiting() -> int:
    """Wake waiting runs after room was made; return how many continue. The dispatcher checks those for which there was
    no time.
    """
    return Round().wake_waiting()


def wake_run(run_id: UUID) -> int:
    """Wake this run if room was made while it began to wait."""
    return _end_fitting(_asked(OF_RUN, run=run_id, most=1), {})


def wake_after_request() -> None:
    """End waits for which a request has left room. Call it in the session of a durable body, which is read-only by
    default.
    """
    with writing():
        _end_fitting(_asked(ALL, after=0, most=AFTER_A_REQUEST), {})


def try_again(model: str) -> None:
    """Check waiting requests again after the price of a model has changed. A request that several models may serve
    stores the names of all.
    """
    given: dict[str, Any] = {"model": model.partition(":")[2] or model, "after": 0, "most": PAGE}
    while at_price := fetch_column(AT_PRICE_OF, given):
        waits.end_these(at_price)
        given["after"] = at_price[-1]


def settle_lost() -> int:
    """Book reservations of ended claims and of trials with an expired lease as spent; return how many."""
    lost = fetch(LOST, {"most": PAGE})
    if lost:
        with transaction.atomic():
            lock(window for _, window in lost)
            fetch(SETTLE, {"ids": [id for id, _ in lost], "used": None})
    return len(lost)


def _asked(statement: str, **which: Any) -> ByWait:
    by_wait = defaultdict[int, list[Asked]](list)
    for asked in fetch_as(Asked, statement, {**which, "nil": NIL}):
        by_wait[asked.id].append(asked)
    return by_wait


def _end_fitting(by_wait: ByWait, room: Room) -> int:
    fitting = _fitting(by_wait, room)
    return waits.end_these(fitting) if fitting else 0


def _fitting(by_wait: ByWait, room: Room) -> list[int]:
    """The waits that fit together into the remaining room, which they use up, and those that fail. A wait that does not
    fit does not block the others.
    """
    fitting = []
    for wait, asked in by_wait.items():
        if any(each.is_final for each in asked):
            fitting.append(wait)
            continue
        of_budgets = [
            (each.amount, (each.budget, each.of_run), each.room)
            for each in asked
            if each.budget is not None and each.room is not None
        ]
        if all(room.setdefault(window, there) >= amount for amount, window, there in of_budgets):
            fitting.append(wait)
            for amount, window, _ in of_budgets:
                room[window] -= amount
    return fitting
