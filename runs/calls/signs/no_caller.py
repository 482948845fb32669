"""A caller has vanished, and none has come since: runs make their requests to models in their workers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.conf import settings

from runs.processes.alive import IS_ALIVE
from runs.processes.lease import patience
from runs.sign import COUNTED, WARNING, Problem, Sign, age, count, span

# An installation without callers, and one whose callers were stopped in order, has none on purpose.
SQL = f"""
SELECT {age("last.seen_at")} AS age, (SELECT count(*) FROM (SELECT FROM runs_modelcall LIMIT {COUNTED}) call) AS left
FROM (SELECT seen_at, stopped_at, stopped_reason FROM runs_worker WHERE kind = 'caller' ORDER BY seen_at DESC LIMIT 1) last
WHERE last.seen_at > clock_timestamp() - interval '1 day' AND (last.stopped_at IS NULL OR last.stopped_reason = 'unseen')
  AND NOT EXISTS (SELECT FROM runs_worker worker WHERE worker.kind = 'caller' AND {IS_ALIVE})
"""  # noqa: S608  (our own parts)


@dataclass(frozen=True, kw_only=True)
class NoCaller:
    """For how many seconds no caller has been seen, and how many requests runs have left to one."""

    age: float
    left: int


def problems(rows: Sequence[NoCaller]) -> Iterator[Problem]:
    for one in rows:
        waiting = f" {count(one.left, 'request')} left to one." if one.left else ""
        yield Problem(
            name="no-caller",
            severity=WARNING,
            text=f"No caller has been seen for {span(one.age)}: runs make their requests to models in their workers, one at a time in "
            f"each child.{waiting}",
            remedy="Start one: `manage.py caller` (`systemctl start wakeful-caller`). This warning ends after a day.",
            lasted=timedelta(seconds=one.age),
            alarm_after=settings.WAKEFUL_ALARM_AFTER,
        )


NO_CALLER = Sign(
    name="no_caller", sql=SQL, row=NoCaller, problems=problems, kinds=("no-caller",), parameters=patience, limit=None
)
