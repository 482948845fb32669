"""Which of a rule's nominal times fire, and when: pure.

Active hours and excluded days close stretches of time; nominal times in them do not fire. What is open fires at its due
time: the nominal time, plus a part of `spread` that stays the same for a schedule, plus a part of `jitter` that is
another each time. Both are drawn from a hash, so every Beat and every preview comes to the same instant; together they
are scaled to stay below the gap to the following fire, so that fires keep their order.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from hashlib import sha256
from itertools import islice
from zoneinfo import ZoneInfo

from triggers.exceptions import RuleError
from triggers.schedules.clock import just_before
from triggers.schedules.excluded_days import ExcludedDays
from triggers.schedules.rules.rule import Rule, count_fires, fire_after, latest_fire, next_fires
from triggers.schedules.terms.active_hours import ActiveHours
from triggers.schedules.terms.open_times import Closure, OpenTimes

NONE = timedelta(0)
CLOSED_IN_A_ROW = 1000  # stretches without an open nominal time after which there is taken to be none
MOST_STEPS = 20_000  # stretches of open or closed time that are looked at to find what is owed


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A rule with what limits and moves its fires; `days` by the name of their calendar, `seed` names the schedule."""

    rule: Rule
    zone: ZoneInfo = ZoneInfo("UTC")
    start: datetime | None = None
    end: datetime | None = None
    hours: ActiveHours | None = None
    days: Sequence[tuple[str, ExcludedDays]] = ()
    jitter: timedelta = NONE
    spread: timedelta = NONE
    seed: str = ""
    once: bool = False

    @cached_property
    def open_times(self) -> OpenTimes:
        return OpenTimes(zone=self.zone, hours=self.hours, days=self.days)

    def raw(self, after: datetime) -> Iterator[datetime]:
        """Every nominal time after an instant, from the start (inclusive) to the end (exclusive), open or closed."""
        return next_fires(self.rule, after, start=self.start, end=self.end)

    def fires(self, after: datetime) -> Iterator[datetime]:
        """The nominal times after an instant that are open; of a one-shot the first."""
        return islice(self._open(after), 1) if self.once else self._open(after)

    def due(self, nominal: datetime) -> datetime:
        """When an open nominal time is to fire."""
        window = self.spread + self.jitter
        if not window:
            return nominal
        offset = self.spread * _share(self.seed) + self.jitter * _share(self.seed, nominal.timestamp())
        following = next(self._open(nominal), None)
        if following is not None and following - nominal < window:
            offset = offset * ((following - nominal) / window)
        return nominal + offset

    def closed(self, instant: datetime) -> Closure | None:
        """Why nothing fires at an instant; None: it may."""
        return self.open_times.closed(instant)

    def last_before(self, first: datetime, before: datetime) -> datetime:
        """The last nominal time before an instant, open or closed; `first` is one."""
        return latest_fire(self.rule, first, just_before(before), end=self.end)

    def newest(self, first: datetime, until: datetime) -> datetime:
        """The newest open nominal time up to `until`; `first` is known to be one. Found from the end backwards.
        RuleError if so much before `until` is closed that looking further would take too long."""
        return next((last for _, last in self._open_stretches_back(first, until)), first)

    def nth_newest(self, first: datetime, until: datetime, number: int) -> datetime:
        """The so many-th newest of them, or `first` where there are fewer. Counted, not listed; RuleError as `newest`."""
        for begin, last in self._open_stretches_back(first, until):
            count = count_fires(self.rule, begin, last)
            if count >= number:
                return fire_after(self.rule, begin, count - number)
            number -= count
        return first

    def count(self, first: datetime, until: datetime) -> int:
        """The number of open nominal times from `first`, which is one, up to `until`. RuleError as `newest`."""
        return sum(count_fires(self.rule, begin, last) for begin, last in self._open_stretches_back(first, until))

    def _open(self, after: datetime) -> Iterator[datetime]:
        if not self.open_times.is_limited:
            yield from self.raw(after)
            return
        closed = 0
        while closed < CLOSED_IN_A_ROW:
            for nominal in self.raw(after):
                if closure := self.closed(nominal):
                    after, closed = just_before(closure.until), closed + 1
                    break
                yield nominal
                closed = 0
            else:
                return

    def _open_stretches_back(self, first: datetime, until: datetime) -> Iterator[tuple[datetime, datetime]]:
        """The first and the last nominal time of each stretch of open time from `until` back to `first`, newest first."""
        at = until
        for _ in range(MOST_STEPS):
            if at < first:
                return
            last = latest_fire(self.rule, first, at, end=self.end)
            began = max(first, self.open_times.began(last))
            if self.closed(last) is None:
                yield next(self.raw(just_before(began))), last
            at = just_before(began)
        raise RuleError(
            "its active hours and exclusions close too much of what it owes to work that out; write fewer and longer"
            " windows, or set a shorter catch_up_window",
            field="active_hours",
        )


def _share(*of: object) -> float:
    """A number from 0 up to, but not including, 1; the same for the same things."""
    digest = sha256("\n".join(map(str, of)).encode()).digest()
    return int.from_bytes(digest[:6]) / 2**48
