"""Which of a rule's nominal times fire, and when: pure.

Active hours and excluded days close stretches of time; nominal times in them do not fire. What is open fires at its due
time: the nominal time, plus a part of `spread` that stays the same for a schedule, plus a part of `jitter` that is
another each time. Both are drawn from a hash, so every Beat and every preview comes to the same instant; together they
are scaled to stay below the gap to the following fire, so that fires keep their order.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from hashlib import sha256
from itertools import islice
from zoneinfo import ZoneInfo

from triggers.exceptions import RuleError
from triggers.schedules.clock import change_of_clock, instant_of, just_before
from triggers.schedules.excluded_days import ExcludedDays
from triggers.schedules.rules.rule import Rule, count_fires, fire_after, latest_fire, next_fires
from triggers.schedules.terms.active_hours import ActiveHours

NONE = timedelta(0)
EARLIEST = datetime.min.replace(tzinfo=UTC)
EVER = datetime.max.replace(tzinfo=UTC)
CLOSED_IN_A_ROW = 1000  # stretches without an open nominal time after which there is taken to be none
MOST_STEPS = 20_000  # stretches of open or closed time that are looked at to find what is owed
MOST_COUNTED = 2**31 - 1  # an integer of PostgreSQL


@dataclass(frozen=True, kw_only=True)
class Closure:
    """Why a nominal time does not fire: outside active hours, or on an excluded day; `until` is when that ends."""

    reason: str
    detail: str
    until: datetime


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """Nominal times one after the other that did not fire, for one reason; `count` is None where they are too many."""

    reason: str
    first: datetime
    last: datetime
    count: int | None
    detail: str = ""


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

    @property
    def is_limited(self) -> bool:
        return bool(self.hours or self.days)

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
        local = instant.astimezone(self.zone)
        for name, days in self.days:
            if (label := days.label(local.date())) is not None:
                detail = f"{name}: {label}" if label else name
                return Closure(reason="excluded", detail=detail, until=self._midnight_after(local.date()))
        if self.hours:
            is_open, until = self._period(instant, self.hours)
            if not is_open:
                # On an excluded day the reason is another one.
                until = min(until, self._midnight_after(local.date())) if self.days else until
                return Closure(reason="inactive", detail=self.hours.text, until=until)
        return None

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

    def account(
        self,
        after: datetime,
        until: datetime,
        fired: Sequence[datetime],
        missed: Sequence[tuple[datetime, str]],
        go_on: Callable[[], bool] = lambda: True,
    ) -> tuple[list[Stretch], datetime]:
        """What the nominal times after an instant and up to another that did not fire have in common, and the instant up
        to which they are accounted for: `until`, or an earlier one where `go_on`, which is called after each step,
        returned false. `fired` ascends. `missed` gives the reasons for open times, each up to an instant, the last one
        without end.
        """
        stretches: list[Stretch] = []
        while (first := next(self.raw(after), None)) is not None and first <= until:
            later = bisect_right(fired, first)
            after = first
            if closure := self.closed(first):
                reason, detail, stop = closure.reason, closure.detail, closure.until
            elif later and fired[later - 1] == first:
                continue
            else:
                before, reason = next((before, reason) for before, reason in missed if first < before)
                detail, stop = "", min(before, self._closes(first), *fired[later : later + 1])
            after = self._last_before(first, min(stop, until + timedelta(microseconds=1)))
            self._append(stretches, Stretch(reason=reason, first=first, last=after, count=None, detail=detail))
            if not go_on():
                break
        else:
            after = max(after, until)
        return [self._counted(stretch) for stretch in stretches], after

    def together(self, after: datetime, until: datetime, reason: str, detail: str = "") -> list[Stretch]:
        """All nominal times after an instant and up to another as one stretch, open or closed."""
        first = next(self.raw(after), None)
        if first is None or first > until:
            return []
        last = self._last_before(first, until + timedelta(microseconds=1))
        return [self._counted(Stretch(reason=reason, first=first, last=last, count=None, detail=detail))]

    def _open(self, after: datetime) -> Iterator[datetime]:
        if not self.is_limited:
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
            began = max(first, self._began(last))
            if self.closed(last) is None:
                yield next(self.raw(just_before(began))), last
            at = just_before(began)
        raise RuleError(
            "its active hours and exclusions close too much of what it owes to work that out; write fewer and longer"
            " windows, or set a shorter catch_up_window",
            field="active_hours",
        )

    def _began(self, instant: datetime) -> datetime:
        """Since when, at the least, it has been open, or closed, without a break, as it is at an instant."""
        local = instant.astimezone(self.zone)
        clock = local.replace(tzinfo=None, fold=0)
        edge = datetime.min
        if self.days:
            edge = datetime.combine(clock.date(), time())
        if self.hours:
            edge = max(edge, self.hours.began(clock))
        if edge == datetime.min:
            return EARLIEST
        began = instant - (clock - edge)
        if began.astimezone(self.zone).utcoffset() != local.utcoffset():
            # The clock changed since: what it shows before that is looked at again.
            began = change_of_clock(began, instant, self.zone)
        return began

    def _closes(self, instant: datetime) -> datetime:
        """When the stretch of open time around an instant ends, at the latest."""
        ends = [EVER]
        if self.days:
            ends.append(self._midnight_after(instant.astimezone(self.zone).date()))
        if self.hours:
            ends.append(self._period(instant, self.hours)[1])
        return min(ends)

    def _period(self, instant: datetime, hours: ActiveHours) -> tuple[bool, datetime]:
        local = instant.astimezone(self.zone)
        is_open, change = hours.period(local.replace(tzinfo=None))
        if change == datetime.max:
            return is_open, EVER
        end = instant_of(change, self.zone)
        if end <= instant:
            # In an hour that the clock shows twice: it is the second showing that ends.
            end = change.replace(tzinfo=self.zone, fold=1).astimezone(UTC)
        end = max(end, instant + timedelta(seconds=1))
        if end.astimezone(self.zone).utcoffset() != local.utcoffset():
            # What the clock shows again may be open again: the period is looked at again where the clock changes.
            end = change_of_clock(instant, end, self.zone)
        return is_open, end

    def _midnight_after(self, day: date) -> datetime:
        return instant_of(datetime.combine(day + timedelta(days=1), time()), self.zone)

    def _last_before(self, first: datetime, before: datetime) -> datetime:
        return latest_fire(self.rule, first, just_before(before), end=self.end)

    def _append(self, stretches: list[Stretch], stretch: Stretch) -> None:
        last = stretches[-1] if stretches else None
        is_one = last and (last.reason, last.detail) == (stretch.reason, stretch.detail)
        if last and is_one and next(self.raw(last.last)) == stretch.first:
            stretches[-1] = replace(last, last=stretch.last)
        else:
            stretches.append(stretch)

    def _counted(self, stretch: Stretch) -> Stretch:
        count = count_fires(self.rule, stretch.first, stretch.last)
        return replace(stretch, count=count if count <= MOST_COUNTED else None)


def _share(*of: object) -> float:
    """A number from 0 up to, but not including, 1; the same for the same things."""
    digest = sha256("\n".join(map(str, of)).encode()).digest()
    return int.from_bytes(digest[:6]) / 2**48
