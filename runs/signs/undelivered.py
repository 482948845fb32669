"""Messages of the outbox that are undelivered after the first attempt."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings

from runs.sign import COUNTED, WARNING, Problem, Sign, age, count

# They are retried soon, so they sort before wakes in the far future. Reads only the head of a long outbox.
SQL = f"""
SELECT count(*) AS count, {age("min(created_at)")} AS age, (array_agg(left(last_error, 300) ORDER BY id))[1] AS error
FROM (SELECT * FROM runs_outboxmessage ORDER BY available_at, id LIMIT {COUNTED}) first WHERE last_error <> ''
HAVING count(*) > 0
"""  # noqa: S608  (our own parts)


@dataclass(frozen=True, kw_only=True)
class Undelivered:
    """Their count, the age in seconds of the oldest, and the error of the first."""

    count: int
    age: float
    error: str


def problems(rows: Sequence[Undelivered]) -> Iterator[Problem]:
    for messages in rows:
        yield Problem(
            name="deliveries",
            severity=WARNING,
            text=f"{count(messages.count, 'message')} undelivered after the first attempt and will be retried. "
            f"The oldest failed with: {messages.error}",
            remedy="If this lasts, check that the broker or the target address is reachable.",
            lasted=timedelta(seconds=messages.age),
            alarm_after=settings.WAKEFUL_ALARM_AFTER,
        )


UNDELIVERED = Sign(name="undelivered", sql=SQL, row=Undelivered, problems=problems, kinds=("deliveries",))
