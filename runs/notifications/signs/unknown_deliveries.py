"""Deliveries of unknown outcome: handed over, and never confirmed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from runs.sign import COUNTED, WARNING, Problem, Sign, count

SQL = f"""
SELECT count(*) AS count FROM (SELECT FROM runs_delivery WHERE status = 'unknown' LIMIT {COUNTED}) unknown HAVING count(*) > 0
"""  # noqa: S608  (our own parts)


@dataclass(frozen=True, kw_only=True)
class UnknownDeliveries:
    count: int


def problems(rows: Sequence[UnknownDeliveries]) -> Iterator[Problem]:
    for unknown in rows:
        yield Problem(
            name="unknown-deliveries",
            severity=WARNING,
            text=f"{count(unknown.count, 'delivery').replace('deliverys', 'deliveries')} of unknown outcome: handed "
            "over, and never confirmed.",
            remedy="Ask the recipients, and record under Deliveries whether each arrived or should be sent again.",
        )


UNKNOWN_DELIVERIES = Sign(
    name="unknown_deliveries", sql=SQL, row=UnknownDeliveries, problems=problems, kinds=("unknown-deliveries",)
)
