"""Budgets that have spent most of their current window."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

from runs.budgets.room import amount_in_words
from runs.sign import WARNING, More, Problem, Sign, is_raised

NEAR = 0.8  # share of a cap from which on its budget is a problem
SQL = f"""
SELECT budget.id, budget.scope, budget.name, budget.period, budget.measure, win.spent::float8 AS spent,
  (budget.cap + win.extra)::float8 AS allowed
FROM runs_budgetwindow win JOIN runs_budget budget ON budget.id = win.budget_id
WHERE win.ends_at > (SELECT clock_timestamp()) AND budget.cap IS NOT NULL AND win.spent >= (budget.cap + win.extra) * {NEAR}
ORDER BY {is_raised("'budget:' || budget.id")} DESC, budget.id
"""  # noqa: S608  (our own parts)


@dataclass(frozen=True, kw_only=True)
class NearCap:
    id: int
    scope: str
    name: str
    period: str
    measure: str
    spent: float
    allowed: float


def problems(rows: Sequence[NearCap]) -> Iterator[Problem]:
    for one in rows:
        whose = "All runs have" if one.scope == "installation" else f"{one.scope.capitalize()} {one.name} has"
        spent, allowed = (amount_in_words(one.measure, Decimal(str(amount))) for amount in (one.spent, one.allowed))
        share = f", {one.spent / one.allowed:.0%}" if one.allowed else ""
        yield Problem(
            name=f"budget:{one.id}",
            severity=WARNING,
            text=f"{whose} spent {spent} of {allowed} in this {one.period} (UTC){share}. A run without budget waits.",
            remedy="Raise the cap, or allow more once, under Budgets (`PATCH /api/v1/budgets/<id>/`).",
        )


NEAR_CAP = Sign(
    name="budgets",
    sql=SQL,
    row=NearCap,
    problems=problems,
    kinds=("budget", "budgets"),
    more=More(name="budgets", severity=WARNING, what="Budgets near their cap"),
)
