"""The settings of both kinds of switches: how long a switch waits, and when."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from agents.kernel.durations import in_words, parse_duration
from runs.ports import ports
from triggers.sources.settings import InvalidSettings, setting

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


@dataclass(frozen=True, kw_only=True)
class Hours:
    """When the time of a switch runs."""

    active_hours: str = setting(
        "",
        "Active hours",
        "The time runs only in these hours, such as mon-fri 09:00-17:00. Empty: always.",
    )
    active_zone: str = setting("", "Zone of the active hours", "An IANA name, such as Europe/Vienna. Empty: UTC.")


def require_hours(hours: Hours, within: str) -> None:
    """InvalidSettings if the hours or the zone make no sense, or if so much active time takes too long."""
    try:
        ports.active_time(datetime.now(UTC), parse_duration(within), hours.active_hours, hours.active_zone)
    except ValueError as error:
        field = "active_zone" if getattr(error, "field", "") == "tz" else "active_hours"
        raise InvalidSettings({field: str(error)}) from None
