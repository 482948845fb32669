"""Runs about which a person must decide."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from runs.sign import COUNTED, WARNING, Problem, Sign, count

SQL = f"""
SELECT count(*) AS count FROM (SELECT FROM runs_run WHERE status = 'uncertain' LIMIT {COUNTED}) parked HAVING count(*) > 0
"""  # noqa: S608  (our own parts)


@dataclass(frozen=True, kw_only=True)
class Uncertain:
    count: int


def problems(rows: Sequence[Uncertain]) -> Iterator[Problem]:
    for parked in rows:
        yield Problem(
            name="uncertain",
            severity=WARNING,
            text=f"{count(parked.count, 'run')} uncertain: a person must decide whether a step happened, or how the run "
            "continues.",
            remedy="Open “Uncertain runs”, find out what happened, and record the answer.",
        )


UNCERTAIN = Sign(name="uncertain", sql=SQL, row=Uncertain, problems=problems, kinds=("uncertain",))
