"""What fires in a stretch of time, found minute by minute from the clock on the wall. It shares nothing with triggers/:
a crontab is here the numbers it was made from, active hours and excluded days the same."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
NONE = timedelta(0)

Shown = list[tuple[datetime, datetime, list[datetime]]]


@dataclass(frozen=True, kw_only=True)
class Crontab:
    """The numbers that the five fields name (Sunday is 0), and the text they were written as."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    fields: tuple[str, str, str, str, str]
    zone: str

    def names(self, local: datetime) -> bool:
        return (
            local.minute in self.minutes
            and local.hour in self.hours
            and local.day in self.days
            and local.month in self.months
            and local.isoweekday() % 7 in self.weekdays
        )

    @property
    def follows_elapsed_time(self) -> bool:
        """Every hour, or every n-th: as opposed to hours that are named."""
        hour = self.fields[1]
        return hour == "*" or (hour.startswith("*/") and hour[2:].isdecimal())

    def times(self, after: datetime, until: datetime) -> Iterator[datetime]:
        for instant, shown, fresh in wall(self.zone, after, until):
            if any(self.names(local) for local in ([shown] if self.follows_elapsed_time else fresh)):
                yield instant


@dataclass(frozen=True, kw_only=True)
class Every:
    """Anchor + k × length; without an anchor from the beginning on."""

    length: timedelta
    anchor: datetime | None = None

    def times(self, after: datetime, until: datetime) -> Iterator[datetime]:
        time = self.anchor or after
        while time <= until:
            if time > after:
                yield time
            time += self.length


@dataclass(frozen=True, kw_only=True)
class Once:
    at: datetime

    def times(self, after: datetime, until: datetime) -> Iterator[datetime]:
        if after < self.at <= until:
            yield self.at


@dataclass(frozen=True, kw_only=True)
class Hours:
    """On these days of the week (Monday is 0), from one minute of the day to another, perhaps of the day after."""

    days: frozenset[int]
    begin: int
    end: int

    def hold(self, local: datetime) -> bool:
        minute = (local - local.replace(hour=0, minute=0, second=0, microsecond=0)) / MINUTE
        today, yesterday = local.weekday() in self.days, (local.weekday() - 1) % 7 in self.days
        return (today and self.begin <= minute < self.end) or (yesterday and self.begin <= minute + 1440 < self.end)


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What a schedule is to do: all that decides it, as numbers."""

    rule: Crontab | Every | Once
    start: datetime | None = None
    end: datetime | None = None
    hours: Sequence[Hours] = ()
    excluded: Mapping[date, str] = field(default_factory=dict)
    zone: str = "UTC"  # of hours and excluded days
    max_fires: int | None = None

    def nominals(self, after: datetime, until: datetime) -> list[datetime]:
        """Every time its rule names, from the start (inclusive) to the end (exclusive)."""
        return [
            time
            for time in self.rule.times(after, until)
            if (self.start is None or time >= self.start) and (self.end is None or time < self.end)
        ]

    def closed(self, nominal: datetime) -> set[str]:
        """All that keeps that time from firing; nothing if it fires."""
        local = nominal.astimezone(ZoneInfo(self.zone)).replace(tzinfo=None)
        is_outside = self.hours and not any(hours.hold(local) for hours in self.hours)
        return ({"excluded"} if local.date() in self.excluded else set()) | ({"inactive"} if is_outside else set())


@lru_cache(maxsize=200)
def wall(zone: str, after: datetime, until: datetime) -> Shown:
    """Each minute after an instant with what the clock shows, and with the local times that it shows for the first time, or
    has just jumped over: none in an hour that it shows again, a whole hour of them where one was left out."""
    clock = ZoneInfo(zone)
    instant = after.replace(second=0, microsecond=0) - 2 * DAY
    furthest = instant.astimezone(clock).replace(tzinfo=None)
    shown: Shown = []
    while (instant := instant + MINUTE) <= until:
        local = instant.astimezone(clock).replace(tzinfo=None)
        fresh = []
        while furthest < local:
            furthest += MINUTE
            fresh.append(furthest)
        if instant > after:
            shown.append((instant, local, fresh))
    return shown


def clock_changes(zone: str, after: datetime, until: datetime) -> list[timedelta]:
    """By how much the zone's clock is put forward (or back, then negative) in a stretch of time."""
    clock = ZoneInfo(zone)
    hours = [after + timedelta(hours=n) for n in range(int((until - after) / timedelta(hours=1)) + 1)]
    offsets = [hour.astimezone(UTC).astimezone(clock).utcoffset() or NONE for hour in hours]
    return [later - before for before, later in zip(offsets, offsets[1:], strict=False) if later != before]
