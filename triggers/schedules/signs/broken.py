"""Enabled schedules that cannot fire."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from runs.sign import BAD, NAMED, Problem, Sign

SQL = """
SELECT periodic.name, schedule.problem FROM triggers_schedule schedule
JOIN django_celery_beat_periodictask periodic ON periodic.id = schedule.task_id
WHERE schedule.rest = 'problem' AND periodic.enabled ORDER BY schedule.id
"""


@dataclass(frozen=True, kw_only=True)
class Broken:
    name: str
    problem: str


def problems(rows: Sequence[Broken]) -> Iterator[Problem]:
    if not rows:
        return
    named = "; ".join(f"{one.name} ({one.problem})" for one in rows[:NAMED])
    more = " and others" if len(rows) > NAMED else ""
    yield Problem(
        name="schedules-broken",
        severity=BAD,
        text=f"Active schedules cannot fire: {named}{more}.",
        remedy="Correct the rule of each schedule, or pause it: `manage.py schedules pause NAME`.",
    )


BROKEN = Sign(name="broken_schedules", sql=SQL, row=Broken, problems=problems, kinds=("schedules-broken",))
