"""Ordinary periodic tasks that Wakeful's Beat fired once, and that no Beat fires now."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from runs.sign import BAD, NAMED, Problem, Sign, count

# One whose time came since and was moved by another Beat is in good hands.
SQL = """
SELECT periodic.name FROM triggers_schedule schedule
JOIN django_celery_beat_periodictask periodic ON periodic.id = schedule.task_id
WHERE schedule.rest = 'foreign' AND schedule.fired_at IS NOT NULL AND periodic.enabled
  AND coalesce(periodic.last_run_at, schedule.fired_at) <= schedule.fired_at
ORDER BY schedule.id
"""


@dataclass(frozen=True, kw_only=True)
class LeftAlone:
    name: str


def problems(rows: Sequence[LeftAlone]) -> Iterator[Problem]:
    if not rows:
        return
    named = ", ".join(one.name for one in rows[:NAMED])
    more = " and others" if len(rows) > NAMED else ""
    yield Problem(
        name="tasks-left-alone",
        severity=BAD,
        text=f"{count(len(rows), 'periodic task')} no longer fired: {named}{more}. Wakeful's Beat fired them and leaves ordinary periodic "
        "tasks to the Beat of their own program now; that one has not fired them since.",
        remedy="If Wakeful's Beat is the only one on this database, set WAKEFUL_ADOPT_PERIODIC_TASKS=true for every process and restart "
        "Beat. Otherwise start the program's own Beat, or switch the tasks off.",
    )


LEFT_ALONE = Sign(
    name="tasks_left_alone", sql=SQL, row=LeftAlone, problems=problems, kinds=("tasks-left-alone",), limit=100
)
