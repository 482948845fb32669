"""Runs that wait for budget go on once there is room for their step. Each commits its wait first and looks for room then;
whatever makes room commits first and looks for waits then: neither misses the other. The dispatcher looks now and then, for
what a crash left undone."""

from collections import defaultdict
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.db import transaction

from agents.journal.protocol import BudgetRequest
from runs import waits
from runs.budgets.reserve import SETTLE
from runs.budgets.windows import lock
from runs.db.session import writing
from runs.db.sql import fetch, fetch_as
from runs.models import NIL

MOST = 5_000  # waits that one look reads, the oldest first
AFTER_A_STEP = 200  # by the run whose step has made room
# Each wait with the budgets that apply to its run; one row without a budget where none does any more.
WAITING = """
SELECT wait.id, run.id AS run_id, budget.id AS budget, turn.run_id AS of_run,
  budget.cap + coalesce(win.extra - win.spent - win.reserved, 0) AS room, coalesce((wait.asked->>budget.measure)::numeric, 0) AS amount
FROM (
  SELECT id, run_id, asked FROM runs_wait WHERE status = 'open' AND kind = 'budget' AND {which} ORDER BY id LIMIT %(most)s::int) wait
JOIN runs_run run ON run.id = wait.run_id
LEFT JOIN runs_budget budget ON budget.cap IS NOT NULL AND coalesce((wait.asked->>budget.measure)::numeric, 0) > 0
  AND (budget.scope = 'installation' OR (budget.scope = 'agent' AND budget.name = run.agent)
    OR (budget.scope = 'trigger' AND budget.name = run.trigger))
LEFT JOIN LATERAL (SELECT
  CASE budget.period WHEN 'run' THEN timestamptz 'epoch' ELSE date_trunc(budget.period, clock_timestamp(), 'UTC') END AS starts_at,
  CASE budget.period WHEN 'run' THEN run.id ELSE %(nil)s::uuid END AS run_id) turn ON budget.id IS NOT NULL
LEFT JOIN runs_budgetwindow win
  ON win.budget_id = budget.id AND win.run_id = turn.run_id AND win.starts_at = turn.starts_at
ORDER BY wait.id
"""
ALL = WAITING.replace("{which}", "true")
OF_RUN = WAITING.replace("{which}", "run_id = %(run)s::uuid")
ANYTHING = """
SELECT EXISTS (SELECT FROM runs_wait WHERE status = 'open' AND kind = 'budget'), EXISTS (SELECT FROM runs_reservation)
"""
LOST = """
SELECT reservation.id, reservation.window_id FROM runs_reservation reservation
LEFT JOIN runs_run run ON run.id = reservation.run_id
WHERE run.id IS NULL OR run.status <> 'running' OR run.claim IS DISTINCT FROM reservation.claim
ORDER BY reservation.id LIMIT %(most)s::int
"""
SETTLE_LOST = SETTLE.replace("{which}", "id = ANY(%(ids)s::bigint[])")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a waiting run asks of a budget, and how much room that has."""

    id: int
    run_id: UUID
    budget: int | None
    of_run: UUID | None
    room: Decimal | None
    amount: Decimal


def asked_of(request: BudgetRequest) -> dict[str, Any]:
    """What a wait for budget keeps."""
    cost = request.cost
    return {
        "budget": request.budget,
        "reason": request.reason,
        "usd": None if cost.usd is None else f"{cost.usd:f}",
        "tokens": cost.tokens,
        "requests": cost.requests,
        "tool_calls": cost.tool_calls,
    }


def look(run_id: UUID | None = None, *, most: int = MOST) -> int:
    """End the waits for which there is room now, the oldest first, or that of one run; how many."""
    statement, given = (OF_RUN, {"run": run_id}) if run_id else (ALL, {})
    by_wait = defaultdict[int, list[Asked]](list)
    for asked in fetch_as(Asked, statement, {**given, "most": most, "nil": NIL}):
        by_wait[asked.id].append(asked)
    fitting = _fitting(by_wait)
    return waits.end_these(fitting) if fitting else 0


def look_after_step() -> None:
    """A step has made room: for whom? In the session of a durable body, which only reads."""
    with writing():
        look(most=AFTER_A_STEP)


def chore() -> int:
    """The dispatcher's look; how many runs go on."""
    [(is_awaited, is_reserved)] = fetch(ANYTHING)
    if is_reserved:
        settle_lost()
    return look() if is_awaited else 0


def settle_lost() -> int:
    """What claims that are over had reserved counts as spent; how many reservations."""
    lost = fetch(LOST, {"most": MOST})
    if lost:
        with transaction.atomic():
            lock(window for _, window in lost)
            fetch(SETTLE_LOST, {"ids": [id for id, _ in lost], "used": None})
    return len(lost)


def _fitting(by_wait: dict[int, list[Asked]]) -> list[int]:
    """Those that fit together into the room there is. One that does not fit holds up no other."""
    room: dict[tuple[int, UUID | None], Decimal] = {}
    fitting = []
    for wait, asked in by_wait.items():
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
