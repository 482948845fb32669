"""Runs that wait for budget."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from runs.sign import COUNTED, Problem, Sign, age, count, fault, span

SQL = f"""
SELECT count(*) AS count, (array_agg(reason ORDER BY id))[1] AS reason, {age("min(created_at)")} AS age
FROM (SELECT id, created_at, asked->>'reason' AS reason FROM runs_wait WHERE status = 'open' AND kind = 'budget'
      ORDER BY id LIMIT {COUNTED}) waiting
HAVING count(*) > 0
"""  # noqa: S608  (our own parts)


@dataclass(frozen=True, kw_only=True)
class BudgetWaits:
    """Their count, and of the oldest the reason and the age in seconds."""

    count: int
    reason: str | None
    age: float


def problems(rows: Sequence[BudgetWaits]) -> Iterator[Problem]:
    for waits in rows:
        yield fault(
            name="budget-waits",
            seconds=waits.age,
            text=f"{count(waits.count, 'run')} waiting for budget, the oldest for {span(waits.age)}: {waits.reason}.",
            remedy="Raise the cap, or allow more once, under Budgets (`PATCH /api/v1/budgets/<id>/`). A run goes on by itself when the "
            "window of its budget turns.",
        )


BUDGET_WAITS = Sign(name="budget_waits", sql=SQL, row=BudgetWaits, problems=problems, kinds=("budget-waits",))
