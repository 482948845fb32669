"""Hosts whose clock is apart from the database's."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from runs.processes.alive import IS_ALIVE
from runs.processes.lease import patience
from runs.sign import WARNING, Problem, Sign

SQL = f"""
SELECT worker.host, max(worker.troubles->'clock'->>'error') AS apart FROM runs_worker worker
WHERE {IS_ALIVE} AND worker.troubles->'clock' IS NOT NULL GROUP BY worker.host ORDER BY worker.host
"""  # noqa: S608  (our own parts)


@dataclass(frozen=True, kw_only=True)
class Clock:
    host: str
    apart: str


def problems(rows: Sequence[Clock]) -> Iterator[Problem]:
    for clock in rows:
        yield Problem(
            name=f"clock:{clock.host}",
            severity=WARNING,
            text=f"The clock of host {clock.host} is {clock.apart} the database's. It gives events ids that are "
            "out of order, and its agents the wrong time.",
            remedy=f"Synchronise the clocks of {clock.host} and of the database server (NTP).",
        )


CLOCKS = Sign(name="clocks", sql=SQL, row=Clock, problems=problems, kinds=("clock",), parameters=patience, limit=None)
