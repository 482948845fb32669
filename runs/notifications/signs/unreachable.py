"""Recipients that notifications cannot be sent to."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from runs.sign import BAD, WARNING, More, Problem, Sign, age, is_raised, span

SQL = f"""
SELECT recipient.name, recipient.address, second.name AS second,
  EXISTS (SELECT FROM runs_recipient WHERE (gets_all OR is_from_settings) AND active AND id <> recipient.id) AS others,
  {age("recipient.failing_since")} AS seconds,
  (SELECT left(error, 300) FROM runs_delivery WHERE recipient_id = recipient.id AND status = 'failed'
   ORDER BY id DESC LIMIT 1) AS error
FROM runs_recipient recipient LEFT JOIN runs_recipient second ON second.id = recipient.second_id AND second.active
WHERE recipient.failing_since IS NOT NULL AND recipient.active
ORDER BY {is_raised("'unreachable:' || recipient.name")} DESC, recipient.name
"""  # noqa: S608  (our own parts)


@dataclass(frozen=True, kw_only=True)
class Unreachable:
    """A recipient whose last deliveries failed for good, for so many seconds; `second`: the one that gets them instead;
    `others`: whether without one there are others, which get all or are the last resort."""

    name: str
    address: str
    second: str | None
    others: bool
    seconds: float
    error: str | None


def problems(rows: Sequence[Unreachable]) -> Iterator[Problem]:
    for one in rows:
        yield Problem(
            name=f"unreachable:{one.name}",
            severity=WARNING if one.second else BAD,
            text=f"Notifications to recipient {one.name} ({one.address}) have failed for {span(one.seconds)}: "
            f"{one.error or 'no error is recorded'}. {_instead(one)}",
            remedy="Correct its address or the server behind it, and send a test. This ends with the next delivery that "
            "succeeds.",
            lasted=timedelta(seconds=one.seconds),
        )


def _instead(one: Unreachable) -> str:
    if one.second:
        return f"{one.second} gets them instead."
    if one.others:
        return (
            "No second route is set: what reached no one else goes to those who get all, or else to WAKEFUL_NOTIFY_TO."
        )
    return "No second route is set, and no one else gets all, so they reach no one."


UNREACHABLE = Sign(
    name="unreachable",
    sql=SQL,
    row=Unreachable,
    problems=problems,
    kinds=("unreachable",),
    more=More(name="unreachable", severity=BAD, what="Recipients that notifications cannot be sent to"),
)
