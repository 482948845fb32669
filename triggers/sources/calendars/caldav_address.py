"""What an address of a CalDAV server is, if it is of no calendar: an error that names the calendars of its account."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol
from urllib.parse import urljoin

from agents.guards.foreign_text import storable_text
from triggers.sources.calendars.multistatus import CALDAV, DAV, Resource
from triggers.sources.runner import SourceError
from triggers.sources.settings import server_of

MOST_NAMED = 10  # calendars
CHECK_ADDRESS = "Enter the CalDAV address of one calendar, as the provider gives it for calendar programs."
NONE = "The address is of no calendar."


class Server(Protocol):
    """The server of the address."""

    url: str
    pause: timedelta

    def about(self, url: str) -> Resource: ...

    def listed(self, url: str, *, depth: str) -> Sequence[Resource]: ...


def is_calendar(one: Resource) -> bool:
    kind = one.properties.first(DAV, "resourcetype")
    return kind is not None and kind.has(CALDAV, "calendar")


def no_calendar(server: Server, found: Resource) -> SourceError:
    """The error of an address that is `found`, and no calendar. No request goes to another server."""
    calendars = _calendars_below(server, server.url)
    home = "" if calendars else _home_of(server, found)
    if home and server_of(home) != server_of(server.url):
        return SourceError(
            f"{NONE} Those of this account are at another server: {home}",
            remedy="Enter that address: its calendars are listed then.",
            retry_after=server.pause,
        )
    calendars = calendars or (_calendars_below(server, home) if home else [])
    named = "; ".join(calendars[:MOST_NAMED])
    more = f", and {len(calendars) - MOST_NAMED} more" if len(calendars) > MOST_NAMED else ""
    return SourceError(
        f"{NONE} There are: {named}{more}" if named else NONE,
        remedy="Enter the address of one of them." if named else CHECK_ADDRESS,
        retry_after=server.pause,
    )


def _calendars_below(server: Server, url: str) -> list[str]:
    return [
        f"{storable_text(one.properties.text_of(DAV, 'displayname'))[:100] or '(no name)'} at {_url(server, one.href)}"
        for one in server.listed(url, depth="1")
        if is_calendar(one)
    ]


def _home_of(server: Server, found: Resource) -> str:
    """The address below which the account has its calendars; empty if the server names none."""
    if home := _link(server, found, CALDAV, "calendar-home-set"):
        return home
    principal = _link(server, found, DAV, "current-user-principal")
    if not principal or server_of(principal) != server_of(server.url):
        return principal
    return _link(server, server.about(principal), CALDAV, "calendar-home-set")


def _link(server: Server, of: Resource, namespace: str, name: str) -> str:
    found = of.properties.first(namespace, name)
    href = found.text_of(DAV, "href") if found else ""
    return _url(server, href) if href else ""


def _url(server: Server, href: str) -> str:
    """Empty: it is no address."""
    try:
        url = storable_text(urljoin(server.url, href))[:500]
        server_of(url)
    except ValueError:
        return ""
    return url
