"""Random schedules: as numbers for tests/support/brute_force.py, and the same as rows."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from random import Random

from django.db import connection, transaction
from django_celery_beat.models import ClockedSchedule, CrontabSchedule, IntervalSchedule, PeriodicTask

from tests.support.brute_force import DAY, MINUTE, NONE, Crontab, Every, Expected, Hours, Once
from triggers.models import ExclusionCalendar, Revision, Schedule, Trigger

ZONES = [
    "Africa/Cairo", "Africa/Casablanca", "Africa/Johannesburg", "America/Adak", "America/Anchorage",
    "America/Argentina/Buenos_Aires", "America/Chicago", "America/Denver", "America/Havana", "America/Los_Angeles",
    "America/New_York", "America/Nuuk", "America/Phoenix", "America/Santiago", "America/St_Johns", "Antarctica/Troll",
    "Asia/Beirut", "Asia/Jerusalem", "Asia/Kathmandu", "Asia/Kolkata", "Asia/Tehran", "Asia/Tokyo", "Atlantic/Azores",
    "Australia/Adelaide", "Australia/Eucla", "Australia/Lord_Howe", "Australia/Sydney", "Europe/Athens",
    "Europe/Chisinau", "Europe/Dublin", "Europe/London", "Europe/Moscow", "Europe/Vienna", "Pacific/Apia",
    "Pacific/Auckland", "Pacific/Chatham", "Pacific/Easter", "Pacific/Kiritimati", "Pacific/Norfolk", "UTC",
]  # fmt: skip
WEEKDAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
LENGTHS = [*(timedelta(seconds=n) for n in (433, 1000, 3601)), *(n * MINUTE for n in (7, 45, 60, 90, 360, 1440, 2881))]


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One schedule: what is expected of it, and what its rows say besides."""

    name: str
    expected: Expected
    catch_up: str
    jitter: timedelta = NONE
    spread: timedelta = NONE
    hours: str = ""  # the text of its active hours
    calendar: str = ""  # the slug of its exclusion calendar
    is_one_off: bool = False
    is_ordinary: bool = False  # a task of Celery's, no trigger

    @property
    def latest_offset(self) -> timedelta:
        return self.jitter + self.spread


@dataclass(frozen=True, kw_only=True)
class Calendar:
    slug: str
    days: dict[date, str] = field(default_factory=dict)
    text: str = ""


class Dice:
    """Draws schedules that have something to do between two instants."""

    def __init__(self, seed: int, begin: datetime, end: datetime) -> None:
        self.random = Random(seed)
        self.begin, self.end = begin, end
        self.calendars = [self._calendar(n) for n in range(12)]

    def samples(self, count: int) -> list[Sample]:
        return [self.sample(f"s{number}") for number in range(count)]

    def sample(self, name: str) -> Sample:
        rule = self._rule()
        zone = rule.zone if isinstance(rule, Crontab) else "UTC"
        if isinstance(rule, Once):
            return Sample(
                name=name,
                expected=Expected(rule=rule),
                catch_up=self._catch_up(),
                is_one_off=True,
                is_ordinary=self._in(3),
            )
        hours, hours_text = self.hours() if self._in(5) else ([], "")
        calendar = self.random.choice(self.calendars) if self._in(5) else Calendar(slug="")
        start = self.begin + self._length(2) if self._in(8) else None
        if isinstance(rule, Every):
            rule = Every(length=rule.length, anchor=start or self.begin)
        one_off = self._in(25)
        expected = Expected(
            rule=rule,
            start=start,
            end=(start or self.begin) + self._length(5) if self._in(8) else None,
            hours=hours,
            excluded=calendar.days,
            zone=self.random.choice(ZONES) if (hours or calendar.slug) and self._in(3) else zone,
            max_fires=1 if one_off else self.random.randint(1, 30) if self._in(8) else None,
        )
        return Sample(
            name=name,
            expected=expected,
            catch_up=self._catch_up(),
            jitter=self._offset() if self._in(6) else NONE,
            spread=self._offset() if self._in(8) else NONE,
            hours=hours_text,
            calendar=calendar.slug,
            is_one_off=one_off,
            is_ordinary=self._in(3),
        )

    def _in(self, n: int) -> bool:
        """True once in n times."""
        return self.random.randrange(n) == 0

    def _catch_up(self) -> str:
        return self.random.choice(["latest", "skip", "all"])

    def _length(self, days: int) -> timedelta:
        return timedelta(seconds=self.random.randrange(days * 86400))

    def _offset(self) -> timedelta:
        return timedelta(seconds=self.random.choice([1, 20, 59, 60, 300, 1200, 5000]))

    # Rules

    def _rule(self) -> Crontab | Every | Once:
        kind = self.random.random()
        if kind < 0.1:
            return Once(
                at=self.begin
                + timedelta(seconds=self.random.randrange(1, int((self.end - self.begin).total_seconds())))
            )
        if kind < 0.25:
            return Every(length=self.random.choice(LENGTHS))
        return self.crontab()

    def crontab(self) -> Crontab:
        pace = self.random.random()
        if pace < 0.003:
            minute, hour = self._field(0, 59, "star"), self._field(0, 23, "star")
        elif pace < 0.03:
            minute, hour = self._field(0, 59, "step"), self._field(0, 23, "range")
        elif pace < 0.15:
            minute, hour = self._field(0, 59, "list"), self._field(0, 23, "any")
        elif pace < 0.5:
            minute, hour = self._field(0, 59, "list"), self._field(0, 4, "list")  # where clocks change
        else:
            minute, hour = self._field(0, 59, "one"), self._field(0, 23, "list")
        day, month, weekday = ("*", everything(1, 31)), ("*", everything(1, 12)), ("*", everything(0, 6))
        if self._in(4):
            day = self._field(1, 31, "any")
        if self._in(8):
            month = self._month()
        if self._in(3):
            weekday = self._field(0, 6, "any", WEEKDAYS)
        return Crontab(
            minutes=minute[1],
            hours=hour[1],
            days=day[1],
            months=month[1],
            weekdays=weekday[1],
            fields=(minute[0], hour[0], day[0], month[0], weekday[0]),
            zone=self.random.choice(ZONES),
        )

    def _month(self) -> tuple[str, frozenset[int]]:
        now = self.begin.month
        shapes = [
            (MONTHS[now - 1], {now}),
            (f"{now},{now % 12 + 1}", {now, now % 12 + 1}),
            ("nov-apr", {11, 12, 1, 2, 3, 4}),
        ]
        text, months = self.random.choice(shapes)
        return text, frozenset(months)

    def _field(self, low: int, high: int, shape: str, names: Sequence[str] = ()) -> tuple[str, frozenset[int]]:
        if shape == "any":
            shape = self.random.choice(["star", "step", "range", "range with step", "list", "one", "mixed"])
        if shape == "star":
            return "*", everything(low, high)
        if shape == "step":
            step = self.random.randint(2, max(2, (high - low) // 2))
            return f"*/{step}", frozenset(range(low, high + 1, step))
        if shape == "one":
            value = self.random.randint(low, high)
            return self._name(value, low, names), frozenset([value])
        if shape == "list":
            values = self.random.sample(range(low, high + 1), self.random.randint(1, 3))
            return ",".join(self._name(value, low, names) for value in values), frozenset(values)
        if shape == "mixed":
            one, other = self._field(low, high, "one", names), self._field(low, high, "range", names)
            return f"{one[0]},{other[0]}", one[1] | other[1]
        first, last = self.random.randint(low, high), self.random.randint(low, high)
        # As in Celery, a range may run over the end of its field.
        values = [*range(first, last + 1)] if first <= last else [*range(first, high + 1), *range(low, last + 1)]
        text = f"{self._name(first, low, names)}-{self._name(last, low, names)}"
        if shape == "range":
            return text, frozenset(values)
        step = self.random.randint(2, 4)
        return f"{text}/{step}", frozenset(values[::step])

    def _name(self, value: int, low: int, names: Sequence[str]) -> str:
        return names[value - low] if names and self._in(2) else str(value)

    # What closes stretches of time

    def hours(self) -> tuple[list[Hours], str]:
        windows, texts = [], []
        for _ in range(self.random.randint(1, 2)):
            begin = self.random.randrange(0, 1440, 15)
            end = begin + self.random.choice([15, 60, 480, 960, 1425])
            first, last = self.random.randrange(7), self.random.randrange(7)
            days = {(first + n) % 7 for n in range((last - first) % 7 + 1)}
            windows.append(Hours(days=frozenset(days), begin=begin, end=end))
            hours = f"{clock(begin)}-{clock(end if end <= 1440 else end - 1440)}"
            texts.append(f"{day_name(first)}-{day_name(last)} {hours}")
        return windows, ", ".join(texts)

    def _calendar(self, number: int) -> Calendar:
        days: dict[date, str] = {}
        lines = []
        for _ in range(self.random.randint(1, 4)):
            first = (self.begin + self._length(9)).date()
            length = self.random.choice([1, 1, 2, 3])
            label = f"day {self.random.randrange(100)}"
            for n in range(length):
                days.setdefault(first + n * DAY, label)
            shape = (
                f"{first}..{first + (length - 1) * DAY}"
                if length > 1
                else self.random.choice([f"{first}", f"*-{first:%m-%d}"])
            )
            lines.append(f"{shape} {label}")
        return Calendar(slug=f"calendar-{number}", days=days, text="\n".join(lines))


def everything(low: int, high: int) -> frozenset[int]:
    return frozenset(range(low, high + 1))


def clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"


def day_name(number: int) -> str:
    return ["mon", "tue", "wed", "thu", "fri", "sat", "sun"][number]


# Rows


def write(
    samples: Sequence[Sample], calendars: Iterable[Calendar], trigger: Trigger, *, at: datetime
) -> dict[str, Schedule]:
    """The samples as rows, made and last edited at an instant; what Beat makes of them is still to come."""
    with transaction.atomic():
        tasks = PeriodicTask.objects.bulk_create([_task(sample) for sample in samples])
        links = {calendar.slug: _calendar_row(calendar) for calendar in calendars}
        schedules = {one.task.name: one for one in Schedule.objects.filter(task__in=tasks).select_related("task")}
        for sample in samples:
            schedule = schedules[sample.name]
            schedule.trigger = None if sample.is_ordinary else trigger
            schedule.catch_up = sample.catch_up
            schedule.jitter, schedule.spread = sample.jitter, sample.spread
            schedule.active_hours, schedule.active_zone = sample.hours, sample.expected.zone
            schedule.max_fires = None if sample.is_one_off else sample.expected.max_fires
            if sample.calendar:
                schedule.exclude.add(links[sample.calendar])
        columns = ["trigger", "catch_up", "jitter", "spread", "active_hours", "active_zone", "max_fires"]
        Schedule.objects.bulk_update(schedules.values(), columns, batch_size=200)
        Revision.objects.filter(schedule__in=schedules.values()).delete()
        date_edits(at)
    return schedules


def date_edits(at: datetime) -> None:
    """Pretend that whatever was edited was edited at an instant."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE triggers_schedule SET edited_at = %s WHERE stale", [at])


def _task(sample: Sample) -> PeriodicTask:
    expected = sample.expected
    task = PeriodicTask(
        name=sample.name,
        task="tests.nothing",
        one_off=sample.is_one_off,
        start_time=expected.start,
        expires=expected.end,
    )
    match expected.rule:
        case Crontab(fields=fields, zone=zone):
            names = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
            task.crontab = CrontabSchedule.objects.create(**dict(zip(names, fields, strict=True)), timezone=zone)
        case Every(length=length):
            seconds = int(length.total_seconds())
            task.interval = IntervalSchedule.objects.get_or_create(every=seconds, period="seconds")[0]
        case Once(at=at):
            task.clocked = ClockedSchedule.objects.create(clocked_time=at.astimezone(UTC))
    return task


def _calendar_row(calendar: Calendar) -> ExclusionCalendar:
    return ExclusionCalendar.objects.create(slug=calendar.slug, days=calendar.text)
