"""When a schedule fires: pure, in its zone, from the parsed fields of its crontab and never by adding fixed offsets.

Nominal times are instants (aware UTC). Where a zone's clocks change, a local time that does not exist fires at the next
valid instant, and one that happens twice fires once, the first time. So a crontab that names every minute fires once
at the end of a skipped hour and not again in a repeated one; what must go on then belongs in UTC or in an interval.
Day of month and day of week must both match, as Celery has always had it; see `Cron.parse` for what `cron` does.
"""

import re
from bisect import bisect_left, bisect_right
from calendar import monthrange
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import MAXYEAR, MINYEAR, UTC, date, datetime, time, timedelta
from itertools import islice, takewhile
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cron_descriptor import Options, get_description
from cron_descriptor.Exception import FormatException, MissingFieldException, WrongArgumentException

from agents.durations import parse_duration
from triggers.schedules.rules.sun import check_solar, solar_times

# Of an interval: below, a typing error would flood the log of events; above, arithmetic would leave the calendar.
SHORTEST, LONGEST = timedelta(milliseconds=100), timedelta(days=36_525)
MINUTES_OF_A_DAY = 1440  # the most that a crontab can name
LONGEST_TEXT = 300  # characters of a rule, or of any part of one: no parser is asked to read more
LONGEST_ZONE = 100  # characters of the name of a zone
FIRST_YEAR, LAST_YEAR = 1900, 9998  # of instants: within them, arithmetic does not leave the calendar
LEAP_CYCLE = 40  # years within which every date of every weekday comes round, a century without leap day included
MONTHS = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
]
WEEKDAYS = ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"]
LONGEST_MONTH = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class RuleError(ValueError):
    """A rule makes no sense; the message says which part of it and what to write instead, `field` which column it is of."""

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.field = field


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
        """From "0 9 * * mon-fri" and the name of a zone; refuses what means one thing to cron and another here."""
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

    def fires(self, after: datetime) -> Iterator[datetime]:
        """Its nominal times after an instant, in order."""
        last = after
        for local in self._local_times(after.astimezone(self.zone).replace(tzinfo=None)):
            # Local times run on while instants stand still in a gap and after a repeated hour.
            if (instant := instant_of(local, self.zone)) > last:
                yield instant
                last = instant

    def newest(self, until: datetime) -> datetime | None:
        """Its newest nominal time up to an instant; found backwards, from the end."""
        start = until.astimezone(self.zone)
        # In a repeated hour, local times later than this one have been shown before.
        local = datetime.combine(start.date(), time.max) if start.fold else start.replace(tzinfo=None)
        earlier = (instant_of(local, self.zone) for local in self._local_times_back(local))
        return next((instant for instant in earlier if instant <= until), None)

    def count(self, first: datetime, last: datetime) -> int:
        """How many nominal times there are from one of them to another, both included; by the day, not one by one."""
        start, end = (at.astimezone(self.zone) for at in (first, last))
        count = 0
        for day in takewhile(lambda day: day <= end.date(), self._dates(start.date())):
            midnight, next_midnight = (datetime.combine(on, time(), self.zone) for on in (day, day + timedelta(days=1)))
            if midnight.utcoffset() == next_midnight.utcoffset():
                count += self._up_to(end.time()) if day == end.date() else len(self.hours) * len(self.minutes)
                count -= self._up_to(start.time()) - 1 if day == start.date() else 0
            else:
                until = min(last, just_before(next_midnight.astimezone(UTC)))
                fires = self.fires(just_before(max(first, midnight.astimezone(UTC))))
                count += _number(fires, until)
        return count

    def _up_to(self, at: time) -> int:
        """How many times of a day it names until then."""
        place = bisect_left(self.hours, at.hour)
        within = bisect_right(self.minutes, at.minute) if at.hour in self.hours else 0
        return place * len(self.minutes) + within

    def _local_times(self, start: datetime) -> Iterator[datetime]:
        for day in self._dates(start.date()):
            for hour in self.hours:
                if datetime.combine(day, time(hour, 59)) > start:
                    for minute in self.minutes:
                        if (local := datetime.combine(day, time(hour, minute))) > start:
                            yield local

    def _local_times_back(self, end: datetime) -> Iterator[datetime]:
        for day in self._dates_back(end.date()):
            for hour in reversed(self.hours):
                if datetime.combine(day, time(hour)) <= end:
                    for minute in reversed(self.minutes):
                        if (local := datetime.combine(day, time(hour, minute))) <= end:
                            yield local

    def _dates_back(self, end: date) -> Iterator[date]:
        for year in range(end.year, max(end.year - LEAP_CYCLE, MINYEAR) - 1, -1):
            for month in reversed(self.months):
                if (year, month) <= (end.year, end.month):
                    first = date(year, month, 1)
                    yield from (day for day in reversed(list(self._dates_of_month(year, month, first))) if day <= end)

    def _dates(self, start: date) -> Iterator[date]:
        for year in range(start.year, min(start.year + LEAP_CYCLE, MAXYEAR - 1) + 1):
            for month in self.months:
                if (year, month) >= (start.year, start.month):
                    yield from self._dates_of_month(year, month, start)

    def _dates_of_month(self, year: int, month: int, start: date) -> Iterator[date]:
        length = monthrange(year, month)[1]
        for day in self.days:
            if day <= length:
                candidate = date(year, month, day)
                if candidate >= start and candidate.isoweekday() % 7 in self.weekdays:
                    yield candidate


@dataclass(frozen=True, kw_only=True)
class Interval:
    """Anchor + k × every, for k = 0, 1, 2 …; clock changes do not touch it."""

    every: timedelta
    anchor: datetime | None = None

    def __post_init__(self) -> None:
        if not SHORTEST <= self.every <= LONGEST:
            raise RuleError(f"an interval of {self.every.total_seconds():g} s is not between 0.1 s and 100 years")

    @classmethod
    def parse(cls, text: str | float | timedelta) -> "Interval":
        """From "30m" or "1h30m", seconds, or a timedelta."""
        try:
            return cls(every=parse_duration(text))
        except (ValueError, OverflowError) as error:
            raise RuleError(str(error)) from None

    @property
    def words(self) -> str:
        """Such as "every 1 hour 30 minutes"."""
        return f"every {describe_length(self.every)}"

    def __str__(self) -> str:
        return self.words

    def fires(self, after: datetime) -> Iterator[datetime]:
        """Its nominal times after an instant, in order; counted from `after` where it has no anchor yet."""
        anchor = self.anchor or after
        with suppress(OverflowError):  # the calendar ends
            fire = anchor + max(0, (after - anchor) // self.every + 1) * self.every
            while True:
                yield fire
                fire += self.every


@dataclass(frozen=True, kw_only=True)
class Clocked:
    """Once, at an instant."""

    at: datetime

    @classmethod
    def parse(cls, instant: str | datetime) -> "Clocked":
        """From a datetime, or text such as "2026-12-01T09:00+01:00"; it must have an offset."""
        if isinstance(instant, str):
            refuse_long(instant, "an instant")
        try:
            at = datetime.fromisoformat(instant) if isinstance(instant, str) else instant
            in_utc = at.astimezone(UTC)
        except (ValueError, OverflowError):
            raise RuleError(f"{instant!r} is no instant; write such as 2026-12-01T09:00+01:00") from None
        if at.tzinfo is None:
            raise RuleError(f"{instant!s} has no offset; write such as 2026-12-01T09:00+01:00")
        return cls(at=in_utc)

    def __post_init__(self) -> None:
        refuse_beyond(self.at)

    @property
    def words(self) -> str:
        return f"once, at {self.at:%Y-%m-%d %H:%M:%S} UTC"

    def __str__(self) -> str:
        return f"at {self.at.isoformat()}"

    def fires(self, after: datetime) -> Iterator[datetime]:
        """Its one nominal time, if that is after the instant."""
        if self.at > after:
            yield self.at


@dataclass(frozen=True, kw_only=True)
class Solar:
    """By the sun at a place: sunrise, sunset, solar_noon, or dawn and dusk (civil, nautical, astronomical)."""

    event: str
    latitude: float  # degrees, north of the equator
    longitude: float  # degrees, east of Greenwich

    def __post_init__(self) -> None:
        try:
            check_solar(self.event, self.latitude, self.longitude)
        except ValueError as error:
            raise RuleError(str(error)) from None

    @property
    def words(self) -> str:
        """Such as "at sunrise (48.2° N, 16.37° E)"."""
        north, east = (
            f"{abs(self.latitude):g}° {'SN'[self.latitude >= 0]}",
            f"{abs(self.longitude):g}° {'WE'[self.longitude >= 0]}",
        )
        return f"at {self.event.replace('_', ' ')} ({north}, {east})"

    def __str__(self) -> str:
        return f"solar {self.event} {self.latitude:g} {self.longitude:g}"

    def fires(self, after: datetime) -> Iterator[datetime]:
        """Its nominal times after an instant, in order; none where it never happens."""
        return solar_times(self.event, self.latitude, self.longitude, after)


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
    """How many nominal times there are from one of them to another, both included."""
    if isinstance(rule, Cron):
        return rule.count(first, last)
    if isinstance(rule, Interval):
        return (last - first) // rule.every + 1
    return 1 + _number(rule.fires(first), last)


def _number(fires: Iterator[datetime], until: datetime) -> int:
    return sum(1 for _ in takewhile(lambda fire: fire <= until, fires))


def refuse_long(text: str, what: str, most: int = LONGEST_TEXT, *, field: str = "") -> None:
    """RuleError if a text has more characters than any that makes sense."""
    if len(text) > most:
        raise RuleError(f"{what} has at most {most:,} characters, not {len(text):,}", field=field)


def refuse_beyond(instant: datetime, *, field: str = "") -> None:
    """RuleError if an instant is so early or so late that arithmetic about it could leave the calendar."""
    if not FIRST_YEAR <= instant.year <= LAST_YEAR:
        raise RuleError(f"{instant:%Y-%m-%d} is not between the years {FIRST_YEAR} and {LAST_YEAR}", field=field)


def just_before(instant: datetime) -> datetime:
    """The last instant before this one that PostgreSQL can tell from it."""
    return instant - timedelta(microseconds=1)


def zone_of(name: str) -> ZoneInfo:
    """An IANA zone; RuleError if there is none of that name."""
    refuse_long(name, "the name of a zone", LONGEST_ZONE, field="tz")
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise RuleError(
            f"there is no zone {name!r}; write an IANA name, such as Europe/Vienna or UTC", field="tz"
        ) from None


def instant_of(local: datetime, zone: ZoneInfo) -> datetime:
    """When a naive local time happens: the first time where it happens twice, the end of the gap where it never does."""
    instant = local.replace(tzinfo=zone).astimezone(UTC)
    if instant.astimezone(zone).replace(tzinfo=None) == local:
        return instant
    # The two readings of a local time in a gap lie on either side of the change.
    return change_of_clock(local.replace(tzinfo=zone, fold=1).astimezone(UTC), instant, zone)


def change_of_clock(before: datetime, after: datetime, zone: ZoneInfo) -> datetime:
    """The instant between two at which a zone takes on the offset of the later one."""
    before, offset = before.replace(microsecond=0), after.astimezone(zone).utcoffset()
    while after - before > timedelta(seconds=1):
        middle = before + timedelta(seconds=(after - before) // timedelta(seconds=2))
        if middle.astimezone(zone).utcoffset() == offset:
            after = middle
        else:
            before = middle
    return after


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


def describe_length(length: timedelta) -> str:
    """Such as "1 hour 30 minutes" or "0.5 seconds"."""
    minutes, seconds = divmod(length, timedelta(minutes=1))
    days, minutes = divmod(minutes, 1440)
    counts = {"day": days, "hour": minutes // 60, "minute": minutes % 60, "second": seconds / timedelta(seconds=1)}
    return " ".join(f"{count:.8g} {unit}{'' if count == 1 else 's'}" for unit, count in counts.items() if count)
