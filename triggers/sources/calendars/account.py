"""What calendars that are read by a connection share."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache
from importlib import import_module
from typing import Any
from zoneinfo import ZoneInfo

from triggers.sources.calendars.entry import Entry
from triggers.sources.calendars.reader import Calendar, CalendarSettings
from triggers.sources.polling.by_connection import connection_named
from triggers.sources.polling.poller import P
from triggers.sources.settings import InvalidSettings, setting


@dataclass(frozen=True, kw_only=True)
class AccountSettings(CalendarSettings):
    """The calendar of an account."""

    connection: str = setting(
        "", "Connection", "The name of a connection that may read calendars.", check=connection_named, is_first=True
    )
    calendar: str = setting("", "Calendar", "Its id at the provider. Empty: the account's own.")

    def __post_init__(self) -> None:
        if not self.connection:
            raise InvalidSettings({"connection": "is required"})


class AccountCalendar(Calendar[P]):
    """A calendar that is read by a connection."""

    needs_secret = False

    def connection_of(self, settings: Mapping[str, Any]) -> str:
        return str(settings.get("connection", ""))

    def clean_secret(self, secret: str) -> str:
        raise InvalidSettings({"secret": "is not used: the connection has the tokens"})


def zone_of(name: str) -> tzinfo:
    """The zone of an IANA name, or of one of Windows; UTC for any other."""
    try:
        return ZoneInfo(_of_windows().get(name, name)) if name else UTC
    except (ValueError, OSError, LookupError):
        return UTC


def name_of(zone: tzinfo) -> str:
    return str(getattr(zone, "key", "UTC"))


def moment(text: Any, zone: tzinfo = UTC) -> datetime:
    """In its own zone; `zone` is that of a time without an offset."""
    found = datetime.fromisoformat(str(text))
    return found if found.tzinfo else found.replace(tzinfo=zone)


def last_states(items: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A list of changes may have an id more than once: its last state counts."""
    return list({str(one.get("id")): one for one in items}.values())


def entries_of(
    items: Sequence[dict[str, Any]], entry_of: Callable[[dict[str, Any]], Entry]
) -> tuple[list[Entry], dict[str, str]]:
    """The entries of these items, and the ids of those that cannot be read, with the reason."""
    found, left_out = [], {}
    for one in items:
        try:
            found.append(entry_of(one))
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
            left_out[str(one.get("id"))] = f"it cannot be read: {type(error).__name__}"
    return found, left_out


def over_after(day: str) -> datetime | None:
    """When a series is over whose last day is this one, which may be of a zone behind UTC. None: the year 9999 stands for no end."""
    try:
        return moment(day) + timedelta(days=2)
    except OverflowError:
        return None


@cache
def _of_windows() -> Mapping[str, str]:
    found: Mapping[str, str] = import_module("icalendar.timezone.windows_to_olson").WINDOWS_TO_OLSON
    return found
