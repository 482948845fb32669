"""Waits whose search for past events has failed more than once and is retried."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from runs.sign import COUNTED, Problem, Sign, age, count, fault

SQL = f"""
SELECT count(*) AS owed, {age("min(created_at)")} AS age, min(left(look_error, 300)) AS error
FROM (SELECT created_at, look_error FROM runs_wait
      WHERE status = 'open' AND looked_at IS NULL AND kind IN ('event', 'children') AND look_failures > 1 LIMIT {COUNTED}) failed
HAVING count(*) > 0
"""  # noqa: S608  (our own parts)


@dataclass(frozen=True, kw_only=True)
class LooksOwed:
    owed: int
    age: float
    error: str | None


def problems(rows: Sequence[LooksOwed]) -> Iterator[Problem]:
    for looks in rows:
        yield fault(
            name="looks-owed",
            text=f"{count(looks.owed, 'wait')} without a complete search for earlier events, because the search "
            f"failed: {looks.error}. These waits do not time out; only a new event ends them.",
            remedy="Fix the cause. The search is retried at least every 5 minutes and continues where it stopped. "
            "A usual cause is a `statement_timeout` of the role of less than a few seconds.",
            seconds=looks.age,
        )


LOOKS_OWED = Sign(name="looks_owed", sql=SQL, row=LooksOwed, problems=problems, kinds=("looks-owed",))
