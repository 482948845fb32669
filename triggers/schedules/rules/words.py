"""A rule in words: a crontab, an interval, an instant, or days of the week, month or year. Pure.

The forms are those that docs/schedules.md lists. A text with two possible meanings is refused, with both ways to say it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from itertools import product
from zoneinfo import ZoneInfo

from agents.kernel.durations import PART, parse_duration, text_of_duration
from agents.kernel.instants import parse_instant
from triggers.exceptions import RuleError
from triggers.schedules.clock import instant_of, refuse_long, zone_of
from triggers.schedules.rules.crontab import MONTHS, WEEKDAYS, Cron
from triggers.schedules.rules.interval import Interval
from triggers.schedules.rules.once import Clocked
from triggers.schedules.rules.rule import Rule

FORMS = (
    '"every weekday at 09:00", "every monday and thursday at 17:30", "on the 1st of every month at 08:00", "every 30m",'
    ' "in 20 minutes", "tomorrow at 9am", "at 2026-12-01T09:00", or a crontab such as "0 9 * * mon-fri"'
)
MACROS = {
    "@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "hourly": "0 * * * *",
}  # fmt: skip
NUMBERS = {
    "a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
    "ten": 10, "eleven": 11, "twelve": 12,
}  # fmt: skip
GROUPS = {"day": "*", "weekday": "mon-fri", "weekend": "sat,sun"}
AND = re.compile(r",? and |, ?")
ZONE = re.compile(r" ([A-Za-z]+(?:[_-][A-Za-z]+)*(?:/[A-Za-z][\w+-]*)+|UTC|GMT)$")
TIME = r"(?:\d{1,2}:\d\d(?: ?[ap]m)?|\d{1,2} ?[ap]m|noon|midnight)"
WHEN_AND_TIMES = re.compile(rf"(?P<when>.*?)(?:^| )(?:at )?(?P<times>{TIME}(?:(?:,? and |, ?)(?:at )?{TIME})*)")
INSTANT = re.compile(r"(?:once, )?(?:at )?(\d{4}-\d\d-\d\d[t ]\d.*)")
DAYS_OF_MONTH = re.compile(
    r"on the (\d{1,2}(?:st|nd|rd|th)(?:(?:,? and |, )(?:the )?\d{1,2}(?:st|nd|rd|th))*) of every month"
)
DATE = re.compile(r"(?:(every|on) )?(\d{1,2}) ([a-z]{3,9})(?: (\d{4}))?")


@dataclass(frozen=True, kw_only=True)
class Days:
    """The days that a crontab names."""

    day_of_month: str = "*"
    month: str = "*"
    day_of_week: str = "*"


def read_rule(text: str, tz: str = "UTC", now: datetime | None = None) -> Rule:
    """Read the rule from a text, in the zone named at its end or else in `tz`; relative times count from `now`.
    RuleError lists forms that work; its `field` is "when", or "tz" where there is no such zone."""
    refuse_long(text, "a rule", field="when")
    try:
        return _read(text, tz, now or datetime.now(UTC))
    except RuleError as error:
        raise RuleError(str(error), field=error.field or "when") from None


def text_of_rule(rule: Rule, zone: ZoneInfo) -> str:
    """A text that `read_rule` reads as the same rule in this zone; empty where no text names it. A time that the clock shows twice is
    read as the first."""
    match rule:
        case Cron():
            return rule.text
        case Interval():
            return f"every {text_of_duration(rule.every)}"
        case Clocked():
            return f"at {rule.at.astimezone(zone):%Y-%m-%dT%H:%M:%S}"
    return ""


def _read(text: str, tz: str, now: datetime) -> Rule:
    said = " ".join(text.split())
    if named := ZONE.search(said):
        said, tz = said[: named.start()], named[1]
    if crontab := _crontab(said):
        return Cron.parse(crontab, tz)
    zone = zone_of(tz)
    words = said.lower()
    rule = _instant(words, zone) or _ahead(words, now) or _interval(words) or _by_calendar(words, now, zone)
    if rule is None:
        raise RuleError(f"{text!r} is no rule; write such as {FORMS}")
    return rule


def _crontab(said: str) -> str | None:
    if said.lower() in MACROS:
        return MACROS[said.lower()]
    if past := re.fullmatch(r"hourly at :(\d\d)", said.lower()):
        return f"{past[1]} * * * *"
    fields = said.split(" ")
    looks = len(fields) == 5 and all(re.fullmatch(r"[\d*,/-]+", one) for one in fields[:2])
    return said if looks or any(one.startswith("*") for one in fields) else None


def _instant(words: str, zone: ZoneInfo) -> Rule | None:
    if (said := INSTANT.fullmatch(words)) is None:
        return None
    try:
        at = parse_instant(said[1])
        return Clocked(at=at.astimezone(UTC) if at.tzinfo else instant_of(at, zone))
    except OverflowError:
        raise RuleError(f"{words!r} is beyond the calendar") from None
    except ValueError as error:
        raise RuleError(str(error)) from None


def _ahead(words: str, now: datetime) -> Rule | None:
    if (length := _length(words.removeprefix("in "))) is None or not words.startswith("in "):
        return None
    try:
        at = now + length
    except OverflowError:
        raise RuleError(f"{words!r} is beyond the calendar") from None
    return Clocked(at=(at.replace(microsecond=0) + timedelta(seconds=at.microsecond > 0)).astimezone(UTC))


def _interval(words: str) -> Rule | None:
    length = _length(words.removeprefix("every "))
    if length is not None and not words.startswith("every "):
        raise RuleError(f'{words!r}: once or again and again? Write "in {words}", or "every {words}"')
    return None if length is None else Interval(every=length)


def _length(text: str) -> timedelta | None:
    """Such as "1h30m" or "two hours"; None if it is no length."""
    text = re.sub(r"half (?:an )?hour", "30 minutes", text)
    text = re.sub(r"^(?=(?:second|minute|hour)$)", "1 ", text)
    text = re.sub(rf"\b({'|'.join(NUMBERS)})\b", lambda found: str(NUMBERS[found[1]]), text)
    if not text or PART.sub("", text).strip():
        return None
    try:
        return parse_duration(text)
    except ValueError as error:
        raise RuleError(str(error)) from None


def _by_calendar(words: str, now: datetime, zone: ZoneInfo) -> Rule | None:
    local = now.astimezone(zone)
    split = WHEN_AND_TIMES.fullmatch(words)
    if split is None:
        if _days(words) or _one_day(words, local.date()):
            raise RuleError(f'{words!r}: at what time? Write such as "{words} at 09:00"')
        if at := re.search(r"\bat (.+)$", words):
            raise RuleError(f"{words!r}: {at[1]!r} is no time of day, such as 09:00, 9am or noon")
        return None
    when, times = split["when"], sorted({_time(found) for found in re.findall(TIME, split["times"])})
    if days := _days(when):
        minute, hour = _clock(times)
        return Cron(
            minute=minute, hour=hour, day_of_month=days.day_of_month, month=days.month, day_of_week=days.day_of_week,
            zone=zone,
        )  # fmt: skip
    return _once(when, times, local, zone)


def _once(when: str, times: Sequence[time], now: datetime, zone: ZoneInfo) -> Rule:
    day = now.date() if when == "" else _one_day(when, now.date())
    if day is None:
        raise RuleError(f"{when!r} names no days; write such as {FORMS}")
    if len(times) > 1:
        raise RuleError('once is at one time; for more, write two schedules, or such as "every day at 09:00 and 17:00"')
    try:
        at = instant_of(datetime.combine(day, times[0]), zone)
        if at <= now and (when == "" or _weekday(when.removeprefix("on "))):
            at = instant_of(datetime.combine(day + timedelta(days=7 if when else 1), times[0]), zone)
    except OverflowError:
        raise RuleError(f"{when!r} is beyond the calendar") from None
    return Clocked(at=at)


def _days(when: str) -> Days | None:
    """The days that come again and again; None if these are none, or one day alone."""
    if said := DAYS_OF_MONTH.fullmatch(when):
        return Days(day_of_month=",".join(re.findall(r"\d+", said[1])))
    if (said := DATE.fullmatch(when)) and said[1] == "every" and not said[4] and (month := _month(said[3])):
        return Days(day_of_month=said[2], month=str(month))
    if when == "daily":
        return Days()
    said_every = when.startswith("every ")
    rest = when.removeprefix("every ").removeprefix("on ")
    singular = rest.removesuffix("s")
    if singular in GROUPS:
        return Days(day_of_week=GROUPS[singular]) if said_every or rest != singular else None
    names = [_weekdays(part.removeprefix("every ")) for part in AND.split(rest)]
    if not all(names) or (not said_every and len(names) == 1 and len(names[0] or "") == 3 and singular == rest):
        return None  # the last: that day, once
    return Days(day_of_week=",".join(filter(None, names)))


def _weekdays(text: str) -> str | None:
    """Such as "mon", or "mon-fri", in a crontab; None if it is none."""
    named = [_weekday(name) for name in re.sub(r" to ", "-", text).split("-")]
    return "-".join(name[:3] for name in named if name) if all(named) and len(named) <= 2 else None


def _weekday(text: str) -> str | None:
    return next((day for day in WEEKDAYS if len(text) >= 3 and f"{day}s".startswith(text)), None)


def _month(text: str) -> int | None:
    return next((number for number, month in enumerate(MONTHS, start=1) if month.startswith(text)), None)


def _one_day(when: str, today: date) -> date | None:
    """The one day meant; None if it is none."""
    if when in ("today", "tomorrow"):
        return _after(today, timedelta(days=when == "tomorrow"))
    if when.startswith("in ") and (length := _length(when.removeprefix("in "))) is not None:
        return None if length % timedelta(days=1) else _after(today, length)
    if day := _weekday(when.removeprefix("on ")):
        return _after(today, timedelta(days=(WEEKDAYS.index(day) - today.isoweekday()) % 7))
    if re.fullmatch(r"(?:on )?\d{4}-\d\d-\d\d", when):
        return _date(when, *map(int, when.removeprefix("on ").split("-")))
    said = DATE.fullmatch(when)
    if said is None or said[1] == "every" or (month := _month(said[3])) is None:
        return None
    if said[4]:
        return _date(when, int(said[4]), month, int(said[2]))
    # The 29th of February may be years ahead.
    ahead = (found for year in range(today.year, today.year + 9) if (found := _existing(year, month, int(said[2]))))
    return next((day for day in ahead if day >= today), None) or _date(when, today.year, month, int(said[2]))


def time_of_day(text: str) -> time:
    """Such as 15:00, 3 pm, 3:30pm or noon; else RuleError."""
    refuse_long(text, "a time of day")
    said = " ".join(text.lower().split())
    if re.fullmatch(TIME, said, re.ASCII) is None:
        raise RuleError(f"{text!r} is no time of day; write such as 9am or 21:00")
    return _time(said)


def _time(text: str) -> time:
    if text in ("noon", "midnight"):
        return time(12 if text == "noon" else 0)
    clock, half = re.fullmatch(r"([\d:]+) ?([ap]m)?", text).groups()  # type: ignore[union-attr]  # TIME lets nothing else through
    hour, minute = (*map(int, clock.split(":")), 0)[:2]
    if (half and not 1 <= hour <= 12) or hour > 23 or minute > 59:
        raise RuleError(f"{text!r} is no time of day; write such as 9am or 21:00")
    return time(hour % 12 + (12 if half == "pm" else 0) if half else hour, minute)


def _clock(times: Sequence[time]) -> tuple[str, str]:
    """Minutes and hours of a crontab."""
    minutes, hours = sorted({at.minute for at in times}), sorted({at.hour for at in times})
    if {(at.hour, at.minute) for at in times} != set(product(hours, minutes)):
        raise RuleError("one crontab cannot have these times together; write two schedules")
    return ",".join(map(str, minutes)), ",".join(map(str, hours))


def _after(day: date, length: timedelta) -> date:
    try:
        return day + length
    except OverflowError:
        raise RuleError(f"{length.days} days ahead is beyond the calendar") from None


def _existing(year: int, month: int, day: int) -> date | None:
    try:
        return date(year, month, day)
    except ValueError:
        return None


def _date(said: str, year: int, month: int, day: int) -> date:
    found = _existing(year, month, day)
    if found is None:
        raise RuleError(f"{said!r}: there is no such day")
    return found
