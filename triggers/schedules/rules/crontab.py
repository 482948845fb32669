"""A crontab of five fields: parsing, and its local times."""

import re
from bisect import bisect_left, bisect_right
from calendar import monthrange
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import MAXYEAR, MINYEAR, date, datetime, time, timedelta
from itertools import takewhile
from zoneinfo import ZoneInfo

from cron_descriptor import Options, get_description
from cron_descriptor.Exception import FormatException, MissingFieldException, WrongArgumentException

from triggers.exceptions import RuleError
from triggers.schedules.clock import before_second_pass, instant_of, refuse_long, showings, zone_of

DAY, SECOND = timedelta(days=1), timedelta(seconds=1)
LEAP_CYCLE = 40  # years within which every date of every weekday comes round, a century without leap day included
MONTHS = [
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
]  # fmt: skip
WEEKDAYS = ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"]
LONGEST_MONTH = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


@dataclass(frozen=True)
class Dates:
    """The dates that a crontab names, by its days of the month, its months and its weekdays."""

    days: Sequence[int]
    months: Sequence[int]
    weekdays: Sequence[int]

    def since(self, start: date) -> Iterator[date]:
        for year in range(start.year, min(start.year + LEAP_CYCLE, MAXYEAR - 1) + 1):
            for month in self.months:
                if (year, month) >= (start.year, start.month):
                    yield from self._of_month(year, month, start)

    def back_from(self, end: date) -> Iterator[date]:
        for year in range(end.year, max(end.year - LEAP_CYCLE, MINYEAR) - 1, -1):
            for month in reversed(self.months):
                if (year, month) <= (end.year, end.month):
                    first = date(year, month, 1)
                    yield from (day for day in reversed(list(self._of_month(year, month, first))) if day <= end)

    def _of_month(self, year: int, month: int, start: date) -> Iterator[date]:
        length = monthrange(year, month)[1]
        for day in self.days:
            if day <= length:
                candidate = date(year, month, day)
                if candidate >= start and candidate.isoweekday() % 7 in self.weekdays:
                    yield candidate


@dataclass(frozen=True, kw_only=True)
class Cron:
    """A crontab of five fields in a zone."""

    minute: str = "*"
    hour: str = "*"
    day_of_month: str = "*"
    month: str = "*"
    day_of_week: str = "*"
    zone: ZoneInfo

    minutes: list[int] = field(init=False, repr=False, compare=False)
    hours: list[int] = field(init=False, repr=False, compare=False)
    days: list[int] = field(init=False, repr=False, compare=False)
    months: list[int] = field(init=False, repr=False, compare=False)
    weekdays: list[int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        read = {
            "minutes": parse_field("minute", self.minute, 0, 59),
            "hours": parse_field("hour", self.hour, 0, 23),
            "days": parse_field("day of month", self.day_of_month, 1, 31),
            "months": parse_field("month", self.month, 1, 12, MONTHS),
            "weekdays": parse_field("day of week", self.day_of_week, 0, 6, WEEKDAYS),
        }
        for name, values in read.items():
            object.__setattr__(self, name, values)  # the one way to derive a field of a frozen dataclass
        if not any(day <= LONGEST_MONTH[month - 1] for month in self.months for day in self.days):
            raise RuleError(f"{self.text!r} never fires: month {self.month} has no day {self.day_of_month}")

    @classmethod
    def parse(cls, text: str, tz: str = "UTC") -> "Cron":
        """Parse "0 9 * * mon-fri" and the name of a zone; refuses syntax that has another meaning in cron."""
        refuse_long(text, "a crontab")
        parts = text.split()
        if len(parts) != 5:
            raise RuleError(
                f"{text!r} has {len(parts)} fields, not 5: minute, hour, day of month, month, day of week,"
                ' such as "0 9 * * mon-fri"'
            )
        minute, hour, day_of_month, month, day_of_week = parts
        cron = cls(
            minute=minute, hour=hour, day_of_month=day_of_month, month=month, day_of_week=day_of_week, zone=zone_of(tz)
        )
        if not day_of_month.startswith("*") and not day_of_week.startswith("*"):
            raise RuleError(
                f"{text!r} gives a day of month and a day of week: cron would fire on either, Celery only on both."
                " Give one of them; for either, write two schedules."
            )
        if "7" in day_of_week:
            # Celery, to whom a row may have to go back, knows no seventh day.
            cron = replace(cron, day_of_week=",".join(map(str, cron.weekdays)))
        for part, size in zip(parts, (60, 24, 31, 12, 7), strict=True):
            if any(int(step) >= size for step in re.findall(r"/(\d+)", part)):
                raise RuleError(f"{text!r}: the step of {part!r} leaves its field; for every so long, use an interval")
        return cron

    @property
    def text(self) -> str:
        return f"{self.minute} {self.hour} {self.day_of_month} {self.month} {self.day_of_week}"

    @property
    def words(self) -> str:
        """Such as "At 09:00, Monday through Friday (Europe/Vienna)"."""
        options = Options()
        options.use_24hour_time_format = True
        try:
            described = get_description(self.text, options)
        except (FormatException, MissingFieldException, WrongArgumentException):
            described = self.text
        return f"{described} ({self.zone})"

    def __str__(self) -> str:
        return f"cron {self.text} {self.zone}"

    @property
    def is_wildcard(self) -> bool:
        """Does the crontab follow elapsed time where clocks change? It does if its hour field is `*` or `*/n`, not a
        range or list.
        """
        return re.fullmatch(r"\*(/\d+)?", self.hour.strip()) is not None

    def fires(self, after: datetime) -> Iterator[datetime]:
        """The nominal times after an instant, in order."""
        last = after
        for instant in in_order(map(self._instants, self._local_times(before_second_pass(after, self.zone)))):
            if instant > last:  # all local times of a gap share its end
                yield instant
                last = instant

    def newest(self, until: datetime) -> datetime | None:
        """The newest nominal time up to an instant; found backwards, from the end."""
        local = until.astimezone(self.zone).replace(tzinfo=None, fold=0)
        near = next((instant for at in self._local_times_back(local) for instant in self._instants(at)[:1]), None)
        if near is None:
            return None
        # Where the clock went back, there are more in between.
        return [near, *takewhile(lambda fire: fire <= until, self.fires(near))][-1]

    def count(self, first: datetime, last: datetime) -> int:
        """The number of nominal times from one of them to another, both included; counted by the day."""
        start, end = (at.astimezone(self.zone) for at in (first, last))
        count, around_changes = 0, set[datetime]()
        # A second pass may belong to the day before.
        for day in takewhile(lambda day: day <= end.date() + DAY, self._dates.since(start.date() - DAY)):
            if self._has_change(day):
                times = (datetime.combine(day, time(hour, minute)) for hour in self.hours for minute in self.minutes)
                instants = (instant for local in times for instant in self._instants(local))
                around_changes.update(instant for instant in instants if first <= instant <= last)
            elif start.date() <= day <= end.date():
                count += self._up_to(end.time()) if day == end.date() else len(self.hours) * len(self.minutes)
                count -= self._up_to(start.time()) - 1 if day == start.date() else 0
        return count + len(around_changes)

    @property
    def _dates(self) -> Dates:
        return Dates(self.days, self.months, self.weekdays)

    def _instants(self, local: datetime) -> list[datetime]:
        """When a local time fires: at each of its showings, or, of a fixed hour, always once."""
        return showings(local, self.zone) if self.is_wildcard else [instant_of(local, self.zone)]

    def _has_change(self, day: date) -> bool:
        """Do clocks change on a day, or at one of its ends?"""
        midnight, next_midnight = (datetime.combine(on, time(), self.zone) for on in (day, day + DAY))
        return (midnight - SECOND).utcoffset() != next_midnight.replace(fold=1).utcoffset()

    def _up_to(self, at: time) -> int:
        """The number of its times on a day up to this time."""
        place = bisect_left(self.hours, at.hour)
        within = bisect_right(self.minutes, at.minute) if at.hour in self.hours else 0
        return place * len(self.minutes) + within

    def _local_times(self, start: datetime) -> Iterator[datetime]:
        for day in self._dates.since(start.date()):
            for hour in self.hours:
                if datetime.combine(day, time(hour, 59)) > start:
                    for minute in self.minutes:
                        if (local := datetime.combine(day, time(hour, minute))) > start:
                            yield local

    def _local_times_back(self, end: datetime) -> Iterator[datetime]:
        for day in self._dates.back_from(end.date()):
            for hour in reversed(self.hours):
                if datetime.combine(day, time(hour)) <= end:
                    for minute in reversed(self.minutes):
                        if (local := datetime.combine(day, time(hour, minute))) <= end:
                            yield local


def in_order(instants: Iterable[Sequence[datetime]]) -> Iterator[datetime]:
    """The showings of ascending local times, ascending too: each second one waits for the first ones before it."""
    second_pass = deque[datetime]()
    for shown in instants:
        for first in shown[:1]:
            while second_pass and second_pass[0] < first:
                yield second_pass.popleft()
            yield first
        second_pass.extend(shown[1:])
    yield from second_pass


def count_until(fires: Iterator[datetime], until: datetime) -> int:
    return sum(1 for _ in takewhile(lambda fire: fire <= until, fires))


def parse_field(field: str, text: str, low: int, high: int, names: list[str] | None = None) -> list[int]:
    """The values a crontab field names, ascending: `*`, 5, mon, 1-5, fri-mon, */15, 10-50/20, and lists of these."""
    refuse_long(text, f"the {field} of a crontab")
    values: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"(?:(\*)|(\w+)(?:-(\w+))?)(?:/(\d+))?", part.strip())
        if not match:
            raise RuleError(f"{field} {text!r}: {part.strip()!r} is not a value, a range or a step")
        star, first, last, step = match.groups()
        if step and (int(step) == 0 or not (star or last)):
            raise RuleError(f"{field} {text!r}: a step needs a range and must not be 0, such as {low}-{high}/5")
        start = low if star else _value(field, first, low, high, names)
        stop = high if star else _value(field, last, low, high, names) if last else start
        # As in Celery, a range may run over the end of its field: fri-mon.
        wrapped = range(start, stop + 1) if start <= stop else [*range(start, high + 1), *range(low, stop + 1)]
        values.update(wrapped[:: int(step or 1)])
    return sorted({0 if value == 7 and names is WEEKDAYS else value for value in values})


def _value(field: str, text: str, low: int, high: int, names: list[str] | None) -> int:
    if text.isdecimal():
        value = int(text)
        if low <= value <= high or (value == 7 and names is WEEKDAYS):
            return value
        raise RuleError(f"{field} {text} is not between {low} and {high}")
    for value, name in enumerate(names or (), start=low):
        if len(text) >= 3 and name.startswith(text.lower()):
            return value
    raise RuleError(f"{field} {text!r} is not a number" + (f" or a name such as {names[0][:3]}" if names else ""))
