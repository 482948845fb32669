"""Replays of many events whose next piece repeatedly fails."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from runs.sign import BAD, Problem, Sign

FAILURES = 2  # in a row; more are a problem
SQL = f"""
SELECT id, left(error, 300) AS error FROM triggers_replay
WHERE status IN ('running', 'cancelling') AND failures > {FAILURES} ORDER BY id
"""  # noqa: S608  (our own part)


@dataclass(frozen=True, kw_only=True)
class StuckReplay:
    id: str
    error: str


def problems(rows: Sequence[StuckReplay]) -> Iterator[Problem]:
    for one in rows:
        yield Problem(
            name=f"replay:{one.id}",
            severity=BAD,
            text=f"Replay {one.id} cannot go on: {one.error}. It is retried every 30 s.",
            remedy="Fix the cause (the dispatcher's log has the traceback), or cancel the replay.",
        )


STUCK_REPLAYS = Sign(name="stuck_replays", sql=SQL, row=StuckReplay, problems=problems, kinds=("replay",))
