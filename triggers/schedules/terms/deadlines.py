"""Deadlines: a time of day on some days of the week, each with the time since which an event counts for it. Pure."""

from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from triggers.exceptions import RuleError
from triggers.schedules.clock import instant_of, refuse_long, zone_of
from triggers.schedules.rules.words import time_of_day
from triggers.schedules.terms.active_hours import DAY, DAYS, days_in_words, days_of_week

MIDNIGHT = time()
AROUND = 2  # days: the clocks of no zone differ by more from those of UTC, nor does a clock change shift a day further
Span = tuple[datetime, datetime]  # since when an event counts, and the deadline


@dataclass(frozen=True, kw_only=True)
class Deadlines:
    """`by` on each of the `days` (0 is Monday). An event counts since the last `since` before it: of the day before, unless `since` is
    earlier in the day than `by`."""

    by: time
    since: time
    days: tuple[int, ...]
    zone: ZoneInfo

    @classmethod
    def parse(cls, by: str, since: str, days: str, zone: str) -> "Deadlines":
        """No `since` is midnight, no `days` are all. RuleError names the field."""
        return cls(
            by=_time(by, "by"),
            since=_time(since, "since") if since.strip() else MIDNIGHT,
            days=_days(days),
            zone=zone_of(zone or "UTC"),
        )

    def ending_after(self, instant: datetime) -> Span:
        """The first deadline after an instant."""
        return self._first(instant, end=True)

    def beginning_after(self, instant: datetime) -> Span:
        """The first deadline for which an event at this instant is too early."""
        return self._first(instant, end=False)

    def ended_by(self, instant: datetime) -> Span:
        """The last deadline up to an instant."""
        day = _local_day(instant, self.zone, AROUND)
        while True:
            if day.weekday() in self.days and (span := span_of(self, day))[1] <= instant:
                return span
            day -= DAY

    def count(self, first: datetime, last: datetime) -> int:
        """The number of deadlines from one to another, both included, except those that a skipped day has put at one instant."""
        start, end = (at.astimezone(self.zone).date().toordinal() for at in (first, last))
        return sum(date.fromordinal(day).weekday() in self.days for day in range(start, end + 1))

    @property
    def words(self) -> str:
        """Such as "by 15:00 on Monday to Friday (Europe/Vienna), since 12:00"."""
        on = "" if len(self.days) == len(DAYS) else f" on {days_in_words(self.days)}"
        before = " of the day before" if self.since >= self.by else ""
        return f"by {self.by:%H:%M}{on} ({self.zone}), since {self.since:%H:%M}{before}"

    def _first(self, instant: datetime, *, end: bool) -> Span:
        day = _local_day(instant, self.zone, -AROUND)
        while True:
            if day.weekday() in self.days and (span := span_of(self, day))[end] > instant:
                return span
            day += DAY


@lru_cache(maxsize=4_096)
def span_of(deadlines: Deadlines, day: date) -> Span:
    """The deadline of a day. Of a time that the clock shows twice it is the first, of one that it skips the end of the gap. If the gap
    swallows the whole span, this is as long as on other days."""
    until = datetime.combine(day, deadlines.by)
    since = datetime.combine(day if deadlines.since < deadlines.by else day - DAY, deadlines.since)
    end, begin = instant_of(until, deadlines.zone), instant_of(since, deadlines.zone)
    return (begin if begin < end else end - (until - since)), end


def _local_day(instant: datetime, zone: ZoneInfo, ahead: int) -> date:
    return instant.astimezone(zone).date() + timedelta(days=ahead)


def _time(text: str, field: str) -> time:
    try:
        return time_of_day(text)
    except RuleError as error:
        raise RuleError(str(error), field=field) from None


def _days(text: str) -> tuple[int, ...]:
    refuse_long(text, "days", field="days")
    if not text.strip():
        return tuple(range(len(DAYS)))
    try:
        return days_of_week(text)
    except RuleError:
        raise RuleError(
            f"{text!r} names no days of the week; write such as mon-fri, or sat, sun", field="days"
        ) from None
