"""A time as a person asks for it: on the wall clock of a zone, where it may not have existed or may have come twice."""

from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from triggers.schedules.rules.rule import instant_of


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The instant that is meant (UTC), and what there is to say about its reading on the clock."""

    instant: datetime
    note: str = ""


def read(at: datetime, zone: ZoneInfo) -> Asked:
    """What a time without an offset means in a zone: the end of the gap where it did not exist, the first time where it
    came twice. One with an offset means what it says."""
    if at.tzinfo is not None:
        return Asked(instant=at.astimezone(UTC))
    instant = instant_of(at, zone)
    day = f"{at:%-d %B %Y} in {zone}"
    if instant.astimezone(zone).replace(tzinfo=None) != at:
        note = f"{at:%H:%M} does not exist on {day}: the clocks go forward, and what is set for then fires at {clock(instant, zone)}."
    elif at.replace(tzinfo=zone, fold=1).utcoffset() != at.replace(tzinfo=zone).utcoffset():
        note = f"{at:%H:%M} comes twice on {day}; what is set for then fires once, the first time ({instant.astimezone(UTC):%H:%M} UTC)."
    else:
        note = ""
    return Asked(instant=instant, note=note)


def shown_before(instant: datetime, zone: ZoneInfo) -> datetime | None:
    """When the clocks of a zone showed for the first time what they show at this instant for the second; else None."""
    local = instant.astimezone(zone)
    return local.replace(fold=0).astimezone(UTC) if local.fold else None


def say(instant: datetime, zone: ZoneInfo, *, with_zone: bool = True) -> str:
    """Such as "Fri 20 Nov 2026, 09:00 (Europe/Vienna)"."""
    return f"{instant.astimezone(zone):%a %-d %b %Y}, {clock(instant, zone)}" + (f" ({zone})" if with_zone else "")


def clock(instant: datetime, zone: ZoneInfo) -> str:
    """What a clock shows, with seconds where there are any."""
    local = instant.astimezone(zone)
    return f"{local:%H:%M:%S}" if local.second else f"{local:%H:%M}"
