"""A calendar of a CalDAV server: its changes by a sync token where the server has them (RFC 6578), and by tags where it has none."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from triggers.models import CalendarEntry
from triggers.sources.calendars.caldav_server import PIECE, CalDavServer, Changes, Stored, tag_of
from triggers.sources.calendars.entry import Look, Occurrence, View
from triggers.sources.calendars.ics import entry_of, occurrence_of, parsed, zone
from triggers.sources.calendars.reader import Calendar, CalendarReader, CalendarSettings, cases
from triggers.sources.kind import register
from triggers.sources.polling.by_connection import connection_named
from triggers.sources.polling.conditional_get import address
from triggers.sources.runner import Assignment, Reader
from triggers.sources.settings import InvalidSettings, server_of, setting
from triggers.sources.switches.terms import zones


@dataclass(frozen=True, kw_only=True)
class CalDavSettings(CalendarSettings):
    """Which calendar, and who reads it."""

    secret_header: ClassVar[str] = "Authorization"
    secret_prefix: ClassVar[str] = "Basic "

    url: str = setting(
        "",
        "Address",
        "Of one calendar, such as https://dav.example.org/ada/office/. That of an account shows an error with its calendars.",
        check=address,
        is_first=True,
        secret_goes_to=server_of,
    )
    user: str = setting("", "User", "As the server knows you; often your address.", secret_goes_to=str)
    connection: str = setting(
        "",
        "Connection",
        "Sign in by this connection (OAuth) instead of a user and a password. The server must be one of its provider's hosts.",
        check=connection_named,
    )
    zone: str = setting(
        "",
        "Zone",
        "An IANA name, such as Europe/Vienna, for whole days and times that name no zone. Empty: UTC.",
        check=zone,
        suggest=zones,
    )

    def __post_init__(self) -> None:
        wrong = {"url": address(self.url)} if address(self.url) else {}
        if self.user and self.connection:
            wrong["connection"] = "signs in without a user: leave one of both empty"
        if wrong or not (self.user.isprintable() and ":" not in self.user):
            raise InvalidSettings(wrong or {"user": "must be printable, and without a colon"})


@register
class CalDav(Calendar[CalDavSettings]):
    name = "caldav"
    label = "Calendar (CalDAV)"
    help_text = "Polls a calendar of a CalDAV server: events made, changed or cancelled, and those about to start."
    settings_class = CalDavSettings
    secret_label = "Password"  # noqa: S105  (a label)
    cases = cases("url", "user", more=("connection", "zone"))
    setup = (
        "Create an app password at the provider, such as iCloud, Fastmail or your Nextcloud, and enter it as the secret.",
        "Enter the address of the calendar. If you know that of the account only, enter it: the source's page lists the calendars.",
    )
    docs_url = "https://www.rfc-editor.org/rfc/rfc4791"

    def connection_of(self, settings: Mapping[str, Any]) -> str:
        return str(settings.get("connection", ""))

    def connect(self, assignment: Assignment[CalDavSettings]) -> Reader:
        return CalDavReader(assignment, target=assignment.settings.url)


class CalDavReader(CalendarReader):
    """The cursor has the sync token, with the events that the server has refused, or the tag of a server without tokens."""

    @property
    def zone(self) -> str:
        return str(self.settings.zone)

    def look(self, cursor: Any, view: View | None, now: datetime) -> Look:
        server = CalDavServer(self.settings, self.assignment.secret)
        if token := (cursor or {}).get("token"):
            changes = server.changes(token, (cursor or {}).get("again", ()))
            return self._changed(server, changes, view, now) if changes else self._whole(server, view, now)
        if (tag := (cursor or {}).get("tag")) and not view:
            collection = server.collection()
            if not collection.token and tag == (collection.tag or server.tag(_kept(now))):
                return Look(cursor=cursor)
        return self._whole(server, view, now)

    def _whole(self, server: CalDavServer, view: View | None, now: datetime) -> Look:
        # Before the events: what is changed meanwhile is then in the next changes, too.
        collection = server.collection()
        stored = server.stored(_kept(now))
        view = view or (self.whole_view(now) if self.wants_starts() else None)
        found = self._parsed(stored, view, now)
        # Without a tag, the next poll reads the whole again.
        is_all = not any(one.is_refused for one in stored)
        tag = (collection.tag or tag_of([(one.path, one.etag) for one in stored])) if is_all else ""
        return Look(
            cursor=_cursor(collection.token, stored) if collection.token else {"tag": tag},
            entries=[entry_of(one) for one in found["entries"]],
            is_whole=True,
            occurrences=[occurrence_of(one) for one in found["occurrences"]] if view else None,
            left_out=found["left_out"],
        )

    def _changed(self, server: CalDavServer, changes: Changes, view: View | None, now: datetime) -> Look:
        has_changed = bool(changes.stored or changes.gone)
        wanted = view or (self.whole_view(now) if has_changed and self.wants_starts() else None)
        found = self._parsed(changes.stored, None, now)
        return Look(
            cursor=_cursor(changes.token, changes.stored),
            entries=[entry_of(one) for one in found["entries"]] if has_changed else None,
            gone=changes.gone,
            renewed=[one.path for one in changes.stored],
            occurrences=self._occurrences(server, wanted, now) if wanted else None,
            left_out=found["left_out"],
        )

    def _occurrences(self, server: CalDavServer, view: View, now: datetime) -> Sequence[Occurrence]:
        found = self._parsed(server.stored(view.start, view.until), view, now)
        return [occurrence_of(one) for one in found["occurrences"]]

    def _parsed(self, stored: Sequence[Stored], view: View | None, now: datetime) -> Mapping[str, Any]:
        if not stored:
            return {"entries": [], "occurrences": [], "left_out": {}}
        bodies = [one.calendar.encode() for one in stored]
        asked = {
            "now": now.isoformat(),
            "view": [view.start.isoformat(), view.until.isoformat()] if view else None,
            "zone": self.settings.zone,
            "documents": [(one.path, len(body)) for one, body in zip(stored, bodies, strict=True)],
        }
        return parsed(b"".join(bodies), asked, self.settings.pause)


def _cursor(token: str, stored: Sequence[Stored]) -> dict[str, Any]:
    again = [one.href for one in stored if one.is_refused][:PIECE]
    return {"token": token, **({"again": again} if again else {})}


def _kept(now: datetime) -> datetime:
    return now - CalendarEntry.KEPT
