"""Signs of trouble: what `config.health` reads from the database, and the problems that it finds there.

A sign is one file in a folder `signs`, beside what it watches: a SELECT, a dataclass for its rows, and the problems of these rows.
`config.health` finds the file, and reads all signs in one statement. No other code imports it, so a worker loads no sign.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, TypeVar

from django.conf import settings

from agents.kernel.durations import in_words
from runs.states import Severity

R = TypeVar("R")

BAD, WARNING = Severity.BAD, Severity.WARNING
AT_ONCE = timedelta()
NEVER = timedelta.max  # for problems that people get as incidents, not as alarms
SHOWN = 20  # rows of a sign, by default
COUNTED = 10_000  # counts stop here; an exact number above it has no use
NAMED = 5  # things of a kind that a sentence names
LATE = timedelta(seconds=30)  # three safety looks; work that waits longer is late


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Bad: something that should happen does not. Warning: it is late, or a person stopped it.

    `lasted` is its duration so far; from `alarm_after` on it is an alarm, by default at once.
    """

    name: str
    severity: Severity
    text: str
    remedy: str
    lasted: timedelta = AT_ONCE
    alarm_after: timedelta = AT_ONCE

    @property
    def kind(self) -> str:
        """The name without its object, e.g. `trigger-paused` of `trigger-paused:<slug>`."""
        return self.name.partition(":")[0]

    @property
    def is_alarm(self) -> bool:
        return self.lasted >= self.alarm_after


def fault(*, name: str, seconds: float, text: str, remedy: str) -> Problem:
    """A bad problem, which is an alarm if it lasts for WAKEFUL_ALARM_AFTER."""
    lasted, alarm_after = timedelta(seconds=seconds), settings.WAKEFUL_ALARM_AFTER
    return Problem(name=name, severity=BAD, text=text, remedy=remedy, lasted=lasted, alarm_after=alarm_after)


@dataclass(frozen=True, kw_only=True)
class More:
    """The problem for the rows over the limit of a sign. `what` is their plural, as the subject of a sentence."""

    name: str
    severity: Severity
    what: str


def no_problems(rows: Sequence[Any]) -> Iterable[Problem]:
    """Find no problem: the sign only provides values for other signs."""
    return ()


@dataclass(kw_only=True, eq=False)
class Sign(Generic[R]):
    """A SELECT, which may be slow for no table, `row` for the columns of each of its rows, and the problems of the rows.

    `kinds` are all kinds of problems that cannot be found without this sign. `parameters` are those of the SELECT; signs that use
    the same name give it the same value. At most `limit` rows are shown (None: all); with `more`, a further one is a problem.
    """

    name: str
    sql: str
    row: Callable[..., R]
    problems: Callable[[Sequence[R]], Iterable[Problem]] = no_problems
    kinds: Sequence[str] = ()
    parameters: Callable[[], Mapping[str, Any]] = dict
    limit: int | None = SHOWN
    more: More | None = None

    @property
    def query(self) -> str:
        """The rows as one JSON array. One row more than is shown is read, to see whether there are more."""
        limit = f" LIMIT {self.limit + 1}" if self.limit is not None else ""
        return f"(SELECT coalesce(json_agg(sign), '[]') FROM ({self.sql}{limit}) sign)"  # noqa: S608  (our own parts)

    def problems_of(self, rows: Sequence[R]) -> Iterator[Problem]:
        yield from self.problems(rows[: self.limit])
        if self.more and self.limit is not None and len(rows) > self.limit:
            yield Problem(
                name=self.more.name,
                severity=self.more.severity,
                text=f"{self.more.what}: {self.limit:,} are listed, and there are more.",
                remedy="Fix the listed ones first. Each that is over makes room for the next.",
            )


def is_raised(name: str) -> str:
    """SQL: is the alarm raised whose name this expression gives? A sign with a limit has these rows first, so that a problem
    that lasts does not look ended."""
    return f"EXISTS (SELECT FROM runs_alarm WHERE name = {name} AND ended_at IS NULL)"  # noqa: S608  (our own)


def age(at: str) -> str:
    """SQL: the seconds since this time."""
    return f"extract(epoch FROM clock_timestamp() - {at})::float8"


def span(seconds: float) -> str:
    return in_words(timedelta(seconds=max(round(seconds), 0))) if seconds >= 1 else "a moment"


def count(number: int, noun: str, *, most: int = COUNTED) -> str:
    """`1 event is`, `7 events are`, `at least 10,000 events are`."""
    if number == 1:
        return f"1 {noun} is"
    more = "at least " if number >= most else ""
    return f"{more}{number:,} {noun}s are"
