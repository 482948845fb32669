"""Elapsed time that counts in active hours alone. Pure."""

from datetime import datetime, timedelta

from triggers.exceptions import RuleError
from triggers.schedules.clock import instant_of, zone_of
from triggers.schedules.terms.active_hours import WEEK, ActiveHours

LONGEST = timedelta(days=3660)


def active_time(since: datetime, length: timedelta, hours: str, zone: str) -> datetime:
    """The instant at which so much time of these active hours has passed since another; empty hours are always. RuleError if the
    hours or the zone make no sense, or if it would take more than LONGEST."""
    active, clock = ActiveHours.parse(hours), zone_of(zone or "UTC")
    a_week = sum((end - begin for begin, end in active.spans), timedelta()) or WEEK
    whole_weeks = max(length // a_week - 1, 0)
    if whole_weeks * WEEK > LONGEST:
        raise RuleError("so much active time takes more than ten years; wait for less", field="active_hours")
    local = since.astimezone(clock).replace(tzinfo=None)
    at, left = since, length - whole_weeks * a_week
    if whole_weeks:
        at = instant_of(local + whole_weeks * WEEK, clock)
    while True:
        is_open, change = active.period(at.astimezone(clock).replace(tzinfo=None))
        if change == datetime.max:
            return at + left
        until = max(instant_of(change, clock), at + timedelta(microseconds=1))
        if is_open and at + left <= until:
            return at + left
        left -= until - at if is_open else timedelta()
        at = until
