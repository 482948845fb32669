"""Active hours: when in the week a schedule may fire, such as "mon-fri 09:00-17:00, sat 10:00-12:00". Pure, in local time."""

import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property

from triggers.exceptions import RuleError
from triggers.schedules.clock import refuse_long

DAY, WEEK = timedelta(days=1), timedelta(weeks=1)
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
SHORT = tuple(day[:3].lower() for day in DAYS)
GROUPS = {"weekday": "mon-fri", "weekend": "sat-sun", "day": "mon-sun", "everyday": "mon-sun", "daily": "mon-sun"}
EXAMPLE = 'write such as "mon-fri 09:00-17:00, sat 10:00-12:00", or "22:00-06:00" for every day'
RANGE = re.compile(r"(.*?) ?(\d{1,2}):(\d\d) ?- ?(\d{1,2}):(\d\d)")  # of a text without repeated spaces
LONGEST_TEXT = 1000  # characters: more than fifty windows


@dataclass(frozen=True, kw_only=True)
class Window:
    """A window from a time of day to another, on some days of the week (0 is Monday); it belongs to the day it begins
    on.
    """

    days: tuple[int, ...]
    begin: timedelta
    end: timedelta  # up to two days where it goes over midnight

    @property
    def hours(self) -> str:
        return f"{_clock(self.begin)}-{_clock(self.end if self.end <= DAY else self.end - DAY)}"

    @property
    def text(self) -> str:
        if len(self.days) == len(DAYS):
            return self.hours
        names = [SHORT[first] if first == last else f"{SHORT[first]}-{SHORT[last]}" for first, last in _runs(self.days)]
        return f"{','.join(names)} {self.hours}"

    @property
    def words(self) -> str:
        if len(self.days) == len(DAYS):
            return f"every day {self.hours}"
        return f"{days_in_words(self.days)} {self.hours}"


@dataclass(frozen=True, kw_only=True)
class ActiveHours:
    """Windows of the week; none at all: always."""

    windows: tuple[Window, ...] = ()
    spans: tuple[tuple[timedelta, timedelta], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "spans", _merge(self.windows))

    @classmethod
    def parse(cls, text: str) -> "ActiveHours":
        """Parse a text; RuleError names the part that makes no sense, and what to write instead."""
        refuse_long(text, "active_hours", LONGEST_TEXT, field="active_hours")
        windows: list[Window] = []
        days = ""
        for part in filter(None, (" ".join(part.split()).lower() for part in text.split(","))):
            match = RANGE.fullmatch(part)
            if match is None:
                days = f"{days},{part}"  # days of the window to come
                _days(part, part)
                continue
            names, *clock = match.groups()
            days = ",".join(filter(None, (days, names)))
            if not days and windows and len(windows[-1].days) < len(DAYS):
                raise _error(f"active hours {part!r} has no days", f"write such as mon-fri {part}, or mon-sun {part}")
            windows.append(_window(part, days or "daily", *map(int, clock)))
            days = ""
        if days:
            raise _error(f"active hours {days.strip(',')!r} has no times", EXAMPLE)
        return cls(windows=tuple(windows))

    @cached_property
    def text(self) -> str:
        """The same, written the one way."""
        return ", ".join(window.text for window in self.windows)

    @property
    def words(self) -> str:
        """Such as "Monday to Friday 09:00-17:00 and Saturday 10:00-12:00"."""
        return _and([window.words for window in self.windows]) or "always"

    def period(self, local: datetime) -> tuple[bool, datetime]:
        """Are the hours active at a naive local time, and the naive local time of the next change (never:
        datetime.max).
        """
        if not self.windows:
            return True, datetime.max
        monday, since = _since_monday(local)
        is_open = any(begin <= since < end for begin, end in self.spans)
        edges = self._edges
        if not edges:
            return True, datetime.max
        change = next((edge for edge in edges if edge > since), edges[0] + WEEK)
        try:
            return is_open, monday + change
        except OverflowError:
            return is_open, datetime.max

    def began(self, local: datetime) -> datetime:
        """The naive local time at which it was opened or closed last (never: datetime.min)."""
        if not self._edges:
            return datetime.min
        monday, since = _since_monday(local)
        return monday + next((edge for edge in reversed(self._edges) if edge <= since), self._edges[-1] - WEEK)

    @cached_property
    def _edges(self) -> list[timedelta]:
        """The times of the week at which it opens or closes, in order."""
        edges = [edge for span in self.spans for edge in span]
        # Open from Sunday into Monday, nothing changes between them.
        return edges[1:-1] if edges and (edges[0], edges[-1]) == (timedelta(), WEEK) else edges


def _since_monday(local: datetime) -> tuple[datetime, timedelta]:
    monday = local.replace(hour=0, minute=0, second=0, microsecond=0) - local.weekday() * DAY
    return monday, local - monday


def days_in_words(days: tuple[int, ...]) -> str:
    """Such as "Monday to Friday and Sunday"."""
    return _and([DAYS[first] if first == last else f"{DAYS[first]} to {DAYS[last]}" for first, last in _runs(days)])


def days_of_week(text: str) -> tuple[int, ...]:
    """The days of a text such as "mon-fri" or "sat, sun" (0 is Monday); RuleError if it names something else, or none."""
    if not (days := _days(" ".join(text.split()).lower(), text)):
        raise _error(f"{text!r} names no day of the week", EXAMPLE)
    return days


def _window(part: str, days: str, hour: int, minute: int, end_hour: int, end_minute: int) -> Window:
    begin, end = timedelta(hours=hour, minutes=minute), timedelta(hours=end_hour, minutes=end_minute)
    if minute > 59 or end_minute > 59 or begin >= DAY or end > DAY:
        raise _error(f"active hours {part!r}: a window goes from 00:00 at the earliest to 24:00 at the latest", EXAMPLE)
    if begin == end:
        raise _error(f"active hours {part!r}: it begins when it ends", "for a whole day write 00:00-24:00")
    return Window(days=_days(days, part), begin=begin, end=end if end > begin else end + DAY)


def _days(text: str, part: str) -> tuple[int, ...]:
    found: set[int] = set()
    for name in filter(None, (name.strip() for name in text.split(","))):
        first, _, last = GROUPS.get(name.removeprefix("every ").removesuffix("s"), name).partition("-")
        start, stop = _day(first.strip(), part), _day((last or first).strip(), part)
        found.update((start + ahead) % 7 for ahead in range((stop - start) % 7 + 1))
    return tuple(sorted(found))


def _day(name: str, part: str) -> int:
    for number, day in enumerate(DAYS):
        if len(name) >= 3 and f"{day.lower()}s".startswith(name):
            return number
    raise _error(f"active hours {part!r}: {name!r} is no day of the week", EXAMPLE)


def _runs(days: tuple[int, ...]) -> list[tuple[int, int]]:
    """Days one after the other as (first, last); two are no range."""
    runs: list[tuple[int, int]] = []
    for day in days:
        if runs and runs[-1][1] == day - 1:
            runs[-1] = runs[-1][0], day
        else:
            runs.append((day, day))
    return [
        run
        for first, last in runs
        for run in ([(first, first), (last, last)] if last == first + 1 else [(first, last)])
    ]


def _merge(windows: tuple[Window, ...]) -> tuple[tuple[timedelta, timedelta], ...]:
    """The stretches of the week from Monday 00:00 on, in order; no two touch."""
    stretches: list[tuple[timedelta, timedelta]] = []
    for window in windows:
        for day in window.days:
            begin, end = window.begin + day * DAY, window.end + day * DAY
            stretches.append((begin, min(end, WEEK)))
            if end > WEEK:
                stretches.append((timedelta(), end - WEEK))
    merged: list[tuple[timedelta, timedelta]] = []
    for begin, end in sorted(stretches):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return tuple(merged)


def _clock(time: timedelta) -> str:
    minutes = time // timedelta(minutes=1)
    return f"{minutes // 60:02}:{minutes % 60:02}"


def _and(names: list[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _error(what: str, fix: str) -> RuleError:
    return RuleError(f"{what}; {fix}", field="active_hours")
