"""A rule of any kind: its next, latest and counted nominal times."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice, takewhile

from triggers.schedules.clock import just_before
from triggers.schedules.rules.crontab import Cron, count_until
from triggers.schedules.rules.interval import Interval
from triggers.schedules.rules.once import Clocked
from triggers.schedules.rules.sun import Solar

MINUTES_OF_A_DAY = 1440  # the most that a crontab can name


Rule = Cron | Interval | Clocked | Solar


def next_fires(
    rule: Rule, after: datetime, *, start: datetime | None = None, end: datetime | None = None
) -> Iterator[datetime]:
    """A rule's nominal times after an instant, from `start` on (inclusive) and before `end`."""
    if start is not None:
        after = max(after, just_before(start))
    fires = rule.fires(after)
    return fires if end is None else takewhile(lambda fire: fire < end, fires)


def latest_fire(rule: Rule, first: datetime, until: datetime, *, end: datetime | None = None) -> datetime:
    """The newest nominal time up to `until` and before `end`; `first` is known to be one. Computed or found
    backwards: the work does not grow with the number of nominal times in between."""
    if end is not None:
        until = min(until, just_before(end))
    if until <= first:
        return first
    if isinstance(rule, Interval):
        return first + (until - first) // rule.every * rule.every
    if isinstance(rule, Cron):
        return max(first, rule.newest(until) or first)
    return _latest_by_looking(rule, first, until)


def _latest_by_looking(rule: Rule, first: datetime, until: datetime) -> datetime:
    span = timedelta(days=2)
    while until - span > first:
        found = list(takewhile(lambda fire: fire <= until, rule.fires(until - span)))
        if found:
            return found[-1]
        span *= 4
    return [first, *takewhile(lambda fire: fire <= until, rule.fires(first))][-1]


def fire_after(rule: Rule, first: datetime, number: int) -> datetime:
    """The nominal time so many after one of them; the caller knows that it exists."""
    if isinstance(rule, Interval):
        return first + number * rule.every
    if isinstance(rule, Cron):
        first, number = _by_days(rule, first, number)
    return next(islice(rule.fires(just_before(first)), number, None))


def _by_days(rule: Cron, first: datetime, number: int) -> tuple[datetime, int]:
    """A later nominal time near the one so many after `first`, and how many are left from there."""
    days = 1
    while number >= MINUTES_OF_A_DAY:
        later = latest_fire(rule, first, first + timedelta(days=days))
        passed = rule.count(first, later) - 1
        if 0 < passed <= number:
            first, number, days = later, number - passed, days * 2
        else:
            days = max(1, days // 2) if passed else days * 2
    return first, number


def count_fires(rule: Rule, first: datetime, last: datetime) -> int:
    """The number of nominal times from one of them to another, both included."""
    if isinstance(rule, Cron):
        return rule.count(first, last)
    if isinstance(rule, Interval):
        return (last - first) // rule.every + 1
    return 1 + count_until(rule.fires(first), last)
