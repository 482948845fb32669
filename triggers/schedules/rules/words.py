"""A rule as a person writes it: a crontab, every so often, at a time, or on days of the week, month or year. Pure.

Generous in form and strict in meaning: what could mean two things is refused, with both ways to say it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from itertools import product
from zoneinfo import ZoneInfo

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
ZONE = re.compile(r"(?:,?\s+in)?\s+\(?((?:[A-Za-z]+(?:[_-][A-Za-z]+)*(?:/[A-Za-z][\w+-]*)+)|UTC|GMT)\)?$")
TIME = r"(?:\d{1,2}:\d\d(?::\d\d)?(?: ?[ap]m)?|\d{1,2} ?[ap]m|noon|midday|midnight)"
TIMES = rf"(?P<times>{TIME}(?:(?:,? and |, ?|,? & )(?:at )?{TIME})*)"
WHEN_THEN_TIMES = re.compile(rf"(?P<when>.*?)(?:(?:^|,? )(?:at )?){TIMES}")
TIMES_THEN_WHEN = re.compile(rf"(?:at )?{TIMES},? (?P<when>.+)")
PAST_THE_HOUR = re.compile(
    r"(?:hourly|(?:every|each) hour),? at (?:minute |:)?(\d{1,2})(?: minutes? past(?: the hour)?)?"
)
INSTANT = re.compile(
    r"(?:once,? )?(?:at |on )?(\d{4}-\d\d-\d\d)(?:t|,? at | )(\d{1,2}:\d\d(?::\d\d(?:\.\d{1,6})?)?) ?(z|[+-]\d\d:?\d\d)?"
)
NUMBERS = {
    word: number
    for number, words in {
        1: "a an one", 2: "two other", 3: "three", 4: "four", 5: "five", 6: "six", 7: "seven", 8: "eight", 9: "nine",
        10: "ten", 11: "eleven", 12: "twelve", 15: "fifteen", 20: "twenty", 30: "thirty", 45: "forty-five", 60: "sixty",
    }.items()
    for word in words.split()
}  # fmt: skip
PHRASES = {
    "an hour and a half": "90 minutes", "half an hour": "30 minutes", "half hour": "30 minutes",
    "quarter of an hour": "15 minutes", "quarter hour": "15 minutes",
}  # fmt: skip
UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
LENGTH = re.compile(
    rf"(?:(\d+(?:\.\d+)?) ?|\b({'|'.join(NUMBERS)}) )"
    r"(s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|weeks?|months?|years?)(?![a-z])"
)
EVERY = r"(?:every|each)"
GROUPS = {
    "day": "*",
    "weekday": "mon-fri",
    "workday": "mon-fri",
    "working day": "mon-fri",
    "business day": "mon-fri",
    "weekend": "sat,sun",
}
AND = re.compile(r",? and |, ?|,? & ")
ORDINALS = r"(?:the )?(?P<days>\d{1,2}(?:st|nd|rd|th)(?:(?:,? and |, ?)(?:the )?\d{1,2}(?:st|nd|rd|th))*)"
DAY_OF_MONTH = re.compile(
    rf"(?:on )?{ORDINALS}(?: day)? of (?:{EVERY}|the) month|(?:{EVERY} month|monthly) on {ORDINALS.replace('days', 'also')}"
)
DATE = (
    r"(?:(?:the )?(?P<day>\d{1,2})(?:st|nd|rd|th)?(?: of)? (?P<month>[a-z]{3,9})"
    r"|(?P<month_>[a-z]{3,9}) (?:the )?(?P<day_>\d{1,2})(?:st|nd|rd|th)?)"
)
YEARLY = (
    re.compile(rf"(?:{EVERY} year|yearly|annually) on {DATE}"),
    re.compile(rf"(?:on )?{DATE},? (?:of )?{EVERY} year"),
    re.compile(rf"(?:on )?{EVERY} {DATE}"),
)
ONE_DATE = re.compile(rf"(?:on )?{DATE}(?:,? (?P<year>\d{{4}}))?")


@dataclass(frozen=True, kw_only=True)
class Days:
    """Of a crontab: which days it names."""

    day_of_month: str = "*"
    month: str = "*"
    day_of_week: str = "*"


def read_rule(text: str, tz: str = "UTC", now: datetime | None = None) -> Rule:
    """The rule that a text says, in the zone it names at its end or else in `tz`; what is relative counts from `now`.
    RuleError lists forms that work; its `field` is "when", or "tz" where there is no such zone."""
    refuse_long(text, "a rule", field="when")
    try:
        return _read(text, tz, now or datetime.now(UTC))
    except RuleError as error:
        raise RuleError(str(error), field=error.field or "when") from None


def _read(text: str, tz: str, now: datetime) -> Rule:
    said = " ".join(text.split())
    if named := ZONE.search(said):
        said, tz = said[: named.start()], named[1]
    if crontab := _crontab(said, tz):
        return Cron.parse(*crontab)
    zone = zone_of(tz)
    words = said.lower().replace("a.m.", "am").replace("p.m.", "pm").rstrip(".!")
    local = now.astimezone(zone)
    rule = _instant(words, zone) or _ahead(words, now) or _interval(words) or _by_calendar(words, local, zone)
    if rule is None:
        raise RuleError(_unread(text, words))
    return rule


def _unread(text: str, words: str) -> str:
    if not words:
        return f"say when: {FORMS}"
    if " between " in f" {words} " or re.search(r"\bfrom \S+ (?:to|until|till) ", words):
        return f'{text!r}: hours of the day are its active hours, such as "09:00-17:00"; here only say how often'
    if split := _split(words):
        return f"{text!r}: {split['when'].strip(' ,')!r} names no days; write such as {FORMS}"
    if at := re.search(r"\bat (.+)$", words):
        return f"{text!r}: {at[1]!r} is no time of day, such as 09:00, 9am or noon"
    return f"{text!r} is no rule; write such as {FORMS}"


# Crontabs


def _crontab(said: str, tz: str) -> tuple[str, str] | None:
    """Its fields, and its zone, which may be a sixth."""
    if said.lower() in MACROS:
        return MACROS[said.lower()], tz
    tokens = said.split(" ")
    is_called = tokens[0].lower() == "cron"
    tokens = tokens[is_called:]
    if is_called and len(tokens) == 6:
        return " ".join(tokens[:5]), tokens[5]
    looks = len(tokens) == 5 and all(re.fullmatch(r"[\d*,/-]+", token) for token in tokens[:2])
    return (" ".join(tokens), tz) if is_called or looks or any(token.startswith("*") for token in tokens) else None


# Every so often, and once


def _interval(words: str) -> Rule | None:
    every, _, length = words.partition(" ")
    if every not in ("every", "each"):
        if (found := _length(words)) is not None and found:
            raise RuleError(f'{words!r}: once or again and again? Write "in {words}", or "every {words}"')
        return None
    if length in ("day", "week", "month", "year"):
        example = {
            "day": "every day at 09:00",
            "week": "every monday at 09:00",
            "month": "on the 1st of every month at 09:00",
        }
        raise RuleError(f'{words!r}: at what time? Write such as "{example.get(length, "every 24 december at 09:00")}"')
    if length in ("second", "minute", "hour"):
        length = f"1 {length}"
    found = _length(length)
    return None if found is None else Interval(every=found)


def _ahead(words: str, now: datetime) -> Rule | None:
    said = re.fullmatch(r"in (.+)|(.+) from now", words)
    if said is None or (length := _length(said[1] or said[2])) is None:
        return None
    try:
        at = now + length
    except OverflowError:
        raise RuleError(f"{words!r} is beyond the calendar") from None
    return Clocked(at=_whole_second(at).astimezone(UTC))


def _whole_second(at: datetime) -> datetime:
    return at.replace(microsecond=0) + timedelta(seconds=at.microsecond > 0)


def _length(text: str) -> timedelta | None:
    """Such as "1h30m" or "two hours and 5 minutes"; None if it is no length."""
    for phrase, meaning in PHRASES.items():
        text = text.replace(phrase, meaning)
    left = AND.sub(" ", LENGTH.sub("", text)).replace(" and ", " ").strip(" ,")
    if left not in ("", "and") or not text:
        return None
    length = timedelta()
    for digits, word, unit in LENGTH.findall(text):
        if unit.startswith(("mo", "y")):
            raise RuleError(
                f'{text!r}: months and years differ in length; write such as "on the 1st of every month at 09:00", or days'
            )
        try:
            length += timedelta(**{UNITS[unit[0]]: float(digits) if digits else NUMBERS[word]})
        except OverflowError:
            raise RuleError(f"{text!r} is beyond the calendar") from None
    return length


def _instant(words: str, zone: ZoneInfo) -> Rule | None:
    if (said := INSTANT.fullmatch(words)) is None:
        return None
    day, clock, offset = said.groups()
    try:
        hour, _, rest = clock.partition(":")
        at = datetime.fromisoformat(f"{day}T{hour:0>2}:{rest}{(offset or '').upper()}")
        return Clocked(at=at.astimezone(UTC) if offset else instant_of(at, zone))
    except (ValueError, OverflowError):
        raise RuleError(f"{words!r}: there is no such day or time; write such as 2026-12-01T09:00") from None


# By the calendar


def _by_calendar(words: str, now: datetime, zone: ZoneInfo) -> Rule | None:
    if past := PAST_THE_HOUR.fullmatch(words):
        return Cron(minute=past[1], zone=zone)
    split = _split(words)
    if split is None:
        if _days(words) or _one_day(words, now.date()):
            raise RuleError(f'{words!r}: at what time? Write such as "{words} at 09:00"')
        return None
    when = split["when"].strip(" ,")
    times = sorted({_time(found) for found in re.findall(TIME, split["times"])})
    if days := _days(when):
        minute, hour = _clock(times)
        return Cron(
            minute=minute,
            hour=hour,
            day_of_month=days.day_of_month,
            month=days.month,
            day_of_week=days.day_of_week,
            zone=zone,
        )
    return _once(when, times, now, zone)


def _split(words: str) -> re.Match[str] | None:
    return WHEN_THEN_TIMES.fullmatch(words) or TIMES_THEN_WHEN.fullmatch(words)


def _once(when: str, times: Sequence[time], now: datetime, zone: ZoneInfo) -> Rule | None:
    day = now.date() if when == "" else _one_day(when, now.date())
    if day is None:
        return None
    if len(times) > 1:
        raise RuleError('once is at one time; for more, write two schedules, or such as "every day at 09:00 and 17:00"')
    try:
        at = instant_of(datetime.combine(day, times[0]), zone)
        if at <= now and (when == "" or _is_weekday(when)):
            at = instant_of(datetime.combine(day + timedelta(days=7 if when else 1), times[0]), zone)
    except OverflowError:
        raise RuleError(f"{when!r} is beyond the calendar") from None
    return Clocked(at=at)


def _one_day(when: str, today: date) -> date | None:
    """The one day meant; None if it is none."""
    ahead = {"today": 0, "tonight": 0, "tomorrow": 1, "the day after tomorrow": 2, "day after tomorrow": 2}
    if when in ahead:
        return _plus(today, ahead[when])
    if (said := re.fullmatch(r"in (.+)", when)) and (length := _length(said[1])) is not None:
        return _plus(today, length.days) if not length % timedelta(days=1) else None
    if _is_weekday(when):
        name = re.sub(r"^(?:on )?(?:(?:this|next|coming|the next) )?", "", when)
        days = (WEEKDAYS.index(_weekday(name) or "") - today.isoweekday()) % 7
        return _plus(today, days or 7 * ("next " in when))
    if re.fullmatch(r"(?:on )?\d{4}-\d\d-\d\d", when):
        return _date(when, *map(int, when.removeprefix("on ").split("-")))
    if said := ONE_DATE.fullmatch(when):
        if (month := _month(said["month"] or said["month_"])) is None:
            return None
        day = int(said["day"] or said["day_"])
        if said["year"]:
            return _date(when, int(said["year"]), month, day)
        # The 29th of February may be years ahead.
        years = (
            year
            for year in range(today.year, today.year + 9)
            if _exists(year, month, day) and date(year, month, day) >= today
        )
        return _date(when, next(years, today.year), month, day)
    return None


def _days(when: str) -> Days | None:
    """The days that come again and again; None if these are none, or one day alone."""
    if said := DAY_OF_MONTH.fullmatch(when):
        return Days(day_of_month=",".join(re.findall(r"\d+", said["days"] or said["also"])))
    if re.search(r"\b(?:last|first|second|third|fourth) \w+ of (?:every|each|the) month", when):
        raise RuleError(
            f'{when!r}: a crontab cannot say that; name a day of the month, such as "on the 1st of every month", or of the week'
        )
    for form in YEARLY:
        if (said := form.fullmatch(when)) and (month := _month(said["month"] or said["month_"])):
            return Days(day_of_month=said["day"] or said["day_"], month=str(month))
    rest = re.sub(rf"^(?:weekly |{EVERY} week )?(?:on )?(?:{EVERY} )?(?:on )?", "", when)
    is_every = bool(re.match(rf"(?:on )?{EVERY} |weekly ", when))
    if rest == "daily":
        return Days()
    if rest in GROUPS or rest.removesuffix("s") in GROUPS:
        is_one = rest in ("day", "weekend", "workday", "weekday") and not is_every
        return None if is_one else Days(day_of_week=GROUPS.get(rest) or GROUPS[rest.removesuffix("s")])
    names = [_weekday_range(part) for part in AND.split(rest)]
    if not all(names):
        return None
    is_plural = rest.endswith("s") and rest.removesuffix("s") in WEEKDAYS
    if len(names) == 1 and names[0] in _SHORT and not (is_every or is_plural):
        return None  # that day, once
    return Days(day_of_week=",".join(filter(None, names)))


def _weekday_range(text: str) -> str | None:
    first, to, last = re.sub(r" (?:to|through|till|until) ", "-", text).partition("-")
    named = [
        _weekday(name.strip().removeprefix("every ").removeprefix("on "))
        for name in ((first, last) if to else (first,))
    ]
    return "-".join(name[:3] for name in named if name) if all(named) else None


def _weekday(text: str) -> str | None:
    return next(
        (
            day
            for day in WEEKDAYS
            if len(text) >= 3 and (day.startswith(text) or f"{day}s" == text or f"{day[:3]}s" == text)
        ),
        None,
    )


def _is_weekday(when: str) -> bool:
    return _weekday(re.sub(r"^(?:on )?(?:(?:this|next|coming|the next) )?", "", when)) is not None


def _month(text: str) -> int | None:
    return next(
        (number for number, month in enumerate(MONTHS, start=1) if len(text) >= 3 and month.startswith(text)), None
    )


def _time(text: str) -> time:
    if text in ("noon", "midday", "midnight"):
        return time(0 if text == "midnight" else 12)
    clock, half = re.fullmatch(r"([\d:]+) ?([ap]m)?", text).groups()  # type: ignore[union-attr]  # TIME lets nothing else through
    hour, minute, second, *_ = (*map(int, clock.split(":")), 0, 0)
    if half and not 1 <= hour <= 12:
        raise RuleError(f"{text!r} is no time of day; write such as 9am or 21:00")
    if half:
        hour = hour % 12 + 12 * (half == "pm")
    if hour > 23 or minute > 59 or second > 59:
        raise RuleError(f"{text!r} is no time of day; they go from 00:00 to 23:59")
    return time(hour, minute, second)


def _clock(times: Sequence[time]) -> tuple[str, str]:
    """Minutes and hours of a crontab."""
    if any(at.second for at in times):
        raise RuleError("what comes again by the calendar has no seconds; leave them out")
    minutes, hours = sorted({at.minute for at in times}), sorted({at.hour for at in times})
    if {(at.hour, at.minute) for at in times} != set(product(hours, minutes)):
        raise RuleError("one crontab cannot have these times together; write two schedules")
    return ",".join(map(str, minutes)), ",".join(map(str, hours))


def _plus(day: date, days: int) -> date:
    try:
        return day + timedelta(days=days)
    except OverflowError:
        raise RuleError(f"{days} days ahead is beyond the calendar") from None


def _exists(year: int, month: int, day: int) -> bool:
    try:
        date(year, month, day)
    except ValueError:
        return False
    return True


def _date(said: str, year: int, month: int, day: int) -> date:
    if not _exists(year, month, day):
        raise RuleError(f"{said!r}: there is no such day")
    return date(year, month, day)


_SHORT = {day[:3] for day in WEEKDAYS}
