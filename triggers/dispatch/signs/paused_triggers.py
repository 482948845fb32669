"""Triggers that paused themselves after failed runs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from runs.sign import BAD, More, Problem, Sign, age, is_raised, span
from triggers.dispatch.run_failures import SAID_OF_PAUSE

SHOWN = 1000
SQL = f"""
SELECT slug, paused_reason AS reason, {age("paused_at")} AS seconds
FROM triggers_trigger WHERE enabled AND paused_at IS NOT NULL AND paused_reason LIKE %(by_failures)s
ORDER BY {is_raised("'trigger-paused:' || triggers_trigger.slug")} DESC, slug
"""  # noqa: S608  (our own parts)


@dataclass(frozen=True, kw_only=True)
class PausedTrigger:
    """A trigger that paused itself, so many seconds ago."""

    slug: str
    reason: str
    seconds: float


def problems(rows: Sequence[PausedTrigger]) -> Iterator[Problem]:
    for one in rows:
        yield Problem(
            name=f"trigger-paused:{one.slug}",
            severity=BAD,
            text=f"Trigger {one.slug} has been paused for {span(one.seconds)}: {one.reason}. Its events are kept.",
            remedy="Fix the cause, then resume the trigger and choose whether its held events run or are dropped.",
            lasted=timedelta(seconds=one.seconds),
        )


PAUSED_TRIGGERS = Sign(
    name="paused_triggers",
    sql=SQL,
    row=PausedTrigger,
    problems=problems,
    kinds=("trigger-paused", "paused-triggers"),
    parameters=lambda: {"by_failures": SAID_OF_PAUSE.format("%")},
    limit=SHOWN,
    more=More(name="paused-triggers", severity=BAD, what="Triggers that paused after failed runs"),
)
