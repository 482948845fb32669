"""The settings of both kinds of switches: how long a switch waits, and when."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from zoneinfo import available_timezones

from agents.kernel.durations import in_words, parse_duration
from runs.ports import ports
from triggers.sources.settings import InvalidSettings, setting
from triggers.switches.switch import deadlines_of

SHORTEST, LONGEST = timedelta(seconds=1), timedelta(days=366)


def duration(shortest: timedelta = SHORTEST) -> Callable[[str], str]:
    """A check of a length of time."""

    def check(value: str) -> str:
        try:
            length = parse_duration(value)
        except ValueError as error:
            return str(error)
        if not shortest <= length <= LONGEST:
            return f"must be from {in_words(shortest) if shortest else '0 s'} to {in_words(LONGEST)}"
        return ""

    return check


@cache
def zones() -> Sequence[str]:
    """The zones that a form offers."""
    return sorted(name for name in available_timezones() if "/" in name and not name.startswith("Etc/"))


@dataclass(frozen=True, kw_only=True)
class Hours:
    """When the time of a switch runs."""

    active_hours: str = setting(
        "",
        "Active hours",
        "The time runs only in these hours, such as mon-fri 09:00-17:00. Empty: always.",
    )
    active_zone: str = setting(
        "", "Zone", "An IANA name, such as Europe/Vienna, for these times. Empty: UTC.", suggest=zones
    )


def require_hours(hours: Hours, within: str) -> None:
    """InvalidSettings if the hours or the zone make no sense, or if so much active time takes too long."""
    try:
        ports.active_time(datetime.now(UTC), parse_duration(within), hours.active_hours, hours.active_zone)
    except ValueError as error:
        field = "active_zone" if getattr(error, "field", "") == "tz" else "active_hours"
        raise InvalidSettings({field: str(error)}) from None


def require_deadlines(settings: Mapping[str, Any]) -> None:
    """InvalidSettings if the deadlines of these settings make no sense."""
    try:
        deadlines_of(settings)
    except ValueError as error:
        field = getattr(error, "field", "")
        raise InvalidSettings({"active_zone" if field == "tz" else field or "by": str(error)}) from None
