"""Triggers at which events ended in an error in the last day, and started no run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from runs.sign import SHOWN, WARNING, More, Problem, Sign, age, is_raised, span
from triggers.dispatch.failing_triggers import COUNTED, LATELY

# Uses the index on (trigger, created_at): one step for each trigger that has an error, so that the cost depends neither on the number
# of triggers nor on the length of the history. OFFSET 0 keeps a join from reading all triggers. Counts errors only for triggers that
# are shown.
LATELY_IN_ERROR = """triggers_decision
    WHERE trigger_id = trigger.id AND outcome = 'error' AND created_at > (SELECT clock_timestamp()) - %(lately)s::interval"""
NEXT = "SELECT trigger_id FROM triggers_decision WHERE outcome = 'error' {after} ORDER BY trigger_id LIMIT 1"
HAVE_ERRORS = f"""
  WITH RECURSIVE walk AS (
    ({NEXT.format(after="")})
    UNION ALL
    SELECT ({NEXT.format(after="AND trigger_id > walk.trigger_id")}) FROM walk WHERE walk.trigger_id IS NOT NULL
  ) SELECT trigger_id FROM walk WHERE trigger_id IS NOT NULL
"""  # noqa: S608  (our own parts)
SQL = f"""
SELECT trigger.slug, errors.count, {age("errors.last")} AS last,
  (SELECT left(reason, 300) FROM triggers_decision
   WHERE trigger_id = trigger.id AND outcome = 'error' AND created_at = errors.last LIMIT 1) AS reason
FROM (
  SELECT trigger.id, trigger.slug, {is_raised("'trigger-errors:' || trigger.slug")} AS is_raised
  FROM ({HAVE_ERRORS}) have CROSS JOIN LATERAL (SELECT * FROM triggers_trigger WHERE id = have.trigger_id OFFSET 0) trigger
  CROSS JOIN LATERAL (SELECT FROM {LATELY_IN_ERROR} LIMIT 1) one
  WHERE trigger.enabled ORDER BY is_raised DESC, trigger.slug LIMIT {SHOWN + 1}) trigger
CROSS JOIN LATERAL (
  SELECT count(*) AS count, max(created_at) AS last FROM (
    SELECT created_at FROM {LATELY_IN_ERROR} ORDER BY created_at DESC LIMIT {COUNTED}) newest) errors
ORDER BY trigger.is_raised DESC, trigger.slug
"""  # noqa: S608  (our own parts)


@dataclass(frozen=True, kw_only=True)
class Erring:
    """A trigger with the count of these events, and the reason and age in seconds of the last one."""

    slug: str
    count: int
    reason: str
    last: float


def problems(rows: Sequence[Erring]) -> Iterator[Problem]:
    for one in rows:
        more = "At least " if one.count == COUNTED else ""
        yield Problem(
            name=f"trigger-errors:{one.slug}",
            severity=WARNING,
            text=f"{more}{one.count:,} event{'' if one.count == 1 else 's'} ended in an error at trigger {one.slug} in the last "
            f"day and started no run. The last error, {span(one.last)} ago: {one.reason}",
            remedy="Correct the trigger's filter, key or input, then use “Dispatch again” on its page "
            f"(`manage.py replay --errors --trigger {one.slug}`).",
        )


ERRING = Sign(
    name="erring",
    sql=SQL,
    row=Erring,
    problems=problems,
    kinds=("trigger-errors",),
    parameters=lambda: {"lately": LATELY},
    more=More(name="trigger-errors", severity=WARNING, what="Triggers at which events ended in an error"),
)
