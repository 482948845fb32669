"""Alarms of the dispatcher itself, which only the dispatcher begins and ends."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from runs.sign import BAD, Problem, Sign, age
from triggers.dispatch.failures import ABSENCES, EVENTS, WINDOWS

SQL = f"""
SELECT name, text, remedy, {age("began_at")} AS age
FROM runs_alarm WHERE ended_at IS NULL AND name = ANY(%(dispatch_alarms)s::text[]) ORDER BY name
"""  # noqa: S608  (our own parts)


@dataclass(frozen=True, kw_only=True)
class RefusedWork:
    """`age` in seconds."""

    name: str
    text: str
    remedy: str
    age: float


def problems(rows: Sequence[RefusedWork]) -> Iterator[Problem]:
    for alarm in rows:
        lasted = timedelta(seconds=alarm.age)
        yield Problem(name=alarm.name, severity=BAD, text=alarm.text, remedy=alarm.remedy, lasted=lasted)


REFUSED_WORK = Sign(
    name="refused_work",
    sql=SQL,
    row=RefusedWork,
    problems=problems,
    kinds=(EVENTS, WINDOWS, ABSENCES),
    parameters=lambda: {"dispatch_alarms": [EVENTS, WINDOWS, ABSENCES]},
)
