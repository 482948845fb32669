"""The span of time that is looked at: by default since yesterday evening, by the clock of this site (WAKEFUL_ZONE). Pure."""

from dataclasses import dataclass
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

from triggers.exceptions import RuleError
from triggers.schedules.clock import instant_of

EVENING = time(18)
LONGEST = timedelta(days=7)


@dataclass(frozen=True, kw_only=True)
class Night:
    """The span of a night, from `start` until `end`, which is not part of it."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        if self.start >= self.end:
            raise RuleError("it must be earlier than the end", field="from")
        if self.end - self.start > LONGEST:
            raise RuleError(f"it must be at most {LONGEST.days} days before the end", field="from")


def night_until(end: datetime, zone: ZoneInfo) -> Night:
    """Since the evening before the day of its end."""
    yesterday = end.astimezone(zone).date() - timedelta(days=1)
    return Night(start=instant_of(datetime.combine(yesterday, EVENING), zone), end=end)


def last_night(hour: int, now: datetime, zone: ZoneInfo) -> Night:
    """The night that ended at the last time at which the clock showed this hour."""
    today = now.astimezone(zone).date()
    mornings = (instant_of(datetime.combine(day, time(hour)), zone) for day in (today, today - timedelta(days=1)))
    return night_until(max(morning for morning in mornings if morning <= now), zone)
