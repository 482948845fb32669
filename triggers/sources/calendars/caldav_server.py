"""Requests to a CalDAV server (RFC 4791), and those of its changes (RFC 6578), which share the time of one poll."""

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any
from xml.sax.saxutils import escape

from runs.network.fetching import FetchResponse, Request
from triggers.sources.calendars.caldav_address import CHECK_ADDRESS, is_calendar, no_calendar
from triggers.sources.calendars.multistatus import (
    CALDAV,
    CALENDARSERVER,
    DAV,
    Multistatus,
    Resource,
    Unreadable,
    multistatus,
    path_of,
)
from triggers.sources.polling.by_connection import Account
from triggers.sources.polling.conditional_get import Asking
from triggers.sources.polling.novelty import digest
from triggers.sources.runner import SourceError

MOST_BYTES = 16 * 2**20  # of all calendars of a poll
PIECE = 100  # calendars that one request names
MOST_PAGES = 12  # of changes; the next poll goes on behind them
MOST_CHANGED = 3_000  # events; if there are more, the whole is read
LONGEST_TOKEN = 4_000  # characters
TRUNCATED = 507  # of the collection itself: the answer has a part of what there is (RFC 4791, 7.8; RFC 6578, 3.6)
# By these, servers refuse a token that they do not know any more. RFC 6578 asks for 403 with a precondition; not all keep to it.
MAY_EXPIRE = (400, 403, 404, 405, 409, 410, 412, 501, TRUNCATED)
NO_CALDAV = (HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED)
REMEDY = "Check the user, and enter an app password as the secret, if the provider has them."
NAMESPACES = f'xmlns:d="{DAV}" xmlns:c="{CALDAV}" xmlns:s="{CALENDARSERVER}"'
XML = '<?xml version="1.0" encoding="utf-8"?>'
ABOUT = "<d:resourcetype/><d:displayname/><d:sync-token/><s:getctag/><d:current-user-principal/><c:calendar-home-set/>"


@dataclass(frozen=True, kw_only=True)
class Stored:
    """A resource with an event, and all that differs from its series. `is_refused`: the server answers with an error of its own, and may
    give it later."""

    href: str
    path: str
    etag: str
    calendar: str  # iCalendar
    is_refused: bool


@dataclass(frozen=True, kw_only=True)
class Collection:
    """A calendar as its server describes it. `token`: empty if it has no RFC 6578; `tag`: changes with any of its events, if it has one."""

    token: str
    tag: str


@dataclass(frozen=True, kw_only=True)
class Changes:
    stored: Sequence[Stored]
    gone: Sequence[str]  # paths
    token: str


class CalDavServer:
    def __init__(self, settings: Any, secret: str) -> None:
        self.url = settings.url
        self.pause = settings.pause
        self.account = Account(settings.connection, pause=self.pause, remedy=REMEDY) if settings.connection else None
        signed = base64.b64encode(f"{settings.user}:{secret}".encode()).decode() if settings.user else ""
        self.asking = Asking(settings, signed, most_bytes=MOST_BYTES, accept="*/*", remedy=REMEDY)
        self.bytes_left = MOST_BYTES

    def collection(self) -> Collection:
        """Raises SourceError, which names the calendars of the account if the address is of none."""
        found = self.about(self.url)
        if not is_calendar(found):
            raise no_calendar(self, found)
        token, tag = (found.properties.text_of(*of) for of in ((DAV, "sync-token"), (CALENDARSERVER, "getctag")))
        return Collection(
            token=token if len(token) <= LONGEST_TOKEN else "", tag=tag if len(tag) <= LONGEST_TOKEN else digest(tag)
        )

    def stored(self, start: datetime, until: datetime | None = None) -> list[Stored]:
        """The events that are not over at `start` and have begun by `until`. Raises SourceError if the server gives a part of them."""
        found = self._report(_query(f"<d:getetag/>{DATA}", start, until))
        return self._events(found)

    def tag(self, start: datetime) -> str:
        """Changes with any of the events that are not over at `start`; empty if the server gives no ETags."""
        found = self._report(_query("<d:getetag/>", start, None))
        return tag_of([(one.path, one.properties.text_of(DAV, "getetag")) for one in self._members(found)])

    def changes(self, token: str, again: Sequence[str]) -> Changes | None:
        """What has changed since the token, and these events. None: the server does not know it any more, or more has changed than is
        read by its name."""
        changed = {path_of(href): href for href in again}
        gone: dict[str, None] = {}
        for _ in range(MOST_PAGES):
            found = self._page_of_changes(token)
            if found is None:
                return None
            for one in found.resources:
                changed.pop(one.path, None)
                gone.pop(one.path, None)
                if one.status == HTTPStatus.NOT_FOUND:
                    gone[one.path] = None
                elif one.status != TRUNCATED and not self._is_self(one) and not _is_collection(one):
                    changed[one.path] = one.href
            is_cut = any(one.status == TRUNCATED for one in found.resources)
            is_stuck = is_cut and found.sync_token == token  # the rest would never come
            if is_stuck or len(changed) + len(gone) > MOST_CHANGED:
                return None
            token = found.sync_token
            if not is_cut:
                break
        stored = self._named(list(changed.values()))
        # Deleted since.
        gone |= dict.fromkeys(changed.keys() - {one.path for one in stored})
        return Changes(stored=stored, gone=list(gone), token=token)

    def _page_of_changes(self, token: str) -> Multistatus | None:
        asked = (
            f"{XML}<d:sync-collection {NAMESPACES}><d:sync-token>{escape(token)}</d:sync-token>"
            "<d:sync-level>1</d:sync-level><d:prop><d:getetag/><d:resourcetype/></d:prop></d:sync-collection>"
        )
        answer = self._send("REPORT", self.url, asked, depth="0", allowed=MAY_EXPIRE)
        if answer.status != HTTPStatus.MULTI_STATUS:
            return None
        found = self._read(answer)
        if not 0 < len(found.sync_token) <= LONGEST_TOKEN:
            raise SourceError("The server's answer has no sync token.", retry_after=self.pause)
        return found

    def _named(self, hrefs: Sequence[str]) -> list[Stored]:
        found: list[Stored] = []
        for start in range(0, len(hrefs), PIECE):
            names = "".join(f"<d:href>{escape(href)}</d:href>" for href in hrefs[start : start + PIECE])
            body = (
                f"{XML}<c:calendar-multiget {NAMESPACES}><d:prop><d:getetag/>{DATA}</d:prop>{names}"
                "</c:calendar-multiget>"
            )
            answer = self._report(body)
            # Some servers give each property of what does not exist its own 404. Another error is none of these: it is still there.
            there = [one for one in answer.resources if one.statuses != {HTTPStatus.NOT_FOUND}]
            found += self._events(replace(answer, resources=there))
        return found

    def _events(self, found: Multistatus) -> list[Stored]:
        stored = []
        for one in self._members(found):
            properties = one.properties
            calendar = properties.text_of(CALDAV, "calendar-data")
            self.bytes_left -= len(calendar)
            stored.append(
                Stored(
                    href=one.href,
                    path=one.path,
                    etag=properties.text_of(DAV, "getetag"),
                    calendar=calendar,
                    is_refused=not calendar and max(one.status, *one.statuses, 0) >= HTTPStatus.INTERNAL_SERVER_ERROR,
                )
            )
        if self.bytes_left < 0:
            raise SourceError(f"The calendar is larger than {MOST_BYTES:,} bytes.", retry_after=self.pause)
        if sum(one.is_refused for one in stored) > PIECE:
            raise SourceError(
                f"The server answers with an error for more than {PIECE} of its events.", retry_after=self.pause
            )
        return stored

    def _members(self, found: Multistatus) -> Iterable[Resource]:
        if any(one.status == TRUNCATED for one in found.resources):
            raise SourceError(
                "The server gives a part of the calendar only: it is too large for the server's limits.",
                remedy="Move old events to another calendar.",
                retry_after=self.pause,
            )
        members = (one for one in found.resources if one.status != HTTPStatus.NOT_FOUND and not self._is_self(one))
        return (one for one in members if not _is_collection(one))

    def _is_self(self, one: Resource) -> bool:
        return one.path.rstrip("/") == path_of(self.url).rstrip("/")

    # Requests

    def about(self, url: str) -> Resource:
        """Raises SourceError."""
        found = self.listed(url, depth="0")
        if not found:
            raise SourceError("The server's answer names no resource.", remedy=CHECK_ADDRESS, retry_after=self.pause)
        return found[0]

    def listed(self, url: str, *, depth: str) -> Sequence[Resource]:
        """The resource, and with depth 1 those below it. Raises SourceError."""
        return self._read(self._send("PROPFIND", url, _propfind(ABOUT), depth=depth)).resources

    def _report(self, body: str) -> Multistatus:
        return self._read(self._send("REPORT", self.url, body, depth="1"))

    def _send(self, method: str, url: str, body: str, *, depth: str, allowed: Sequence[int] = ()) -> FetchResponse:
        headers = {"Depth": depth, "Content-Type": "application/xml; charset=utf-8"}
        statuses = (HTTPStatus.MULTI_STATUS, *(allowed or NO_CALDAV))
        if self.account:
            answer = self.account.ask(
                url, headers=headers, method=method, content=body.encode(), allowed=statuses, most_bytes=MOST_BYTES
            )
        else:
            answer = self.asking.send(Request(url=url, method=method, content=body.encode(), headers=headers))
            self.asking.accepted(answer, *statuses)
        if answer.status in NO_CALDAV and not allowed:
            raise SourceError(
                f"The address takes no CalDAV: it answers {answer.status}.",
                remedy=CHECK_ADDRESS,
                retry_after=self.pause,
            )
        return answer

    def _read(self, answer: FetchResponse) -> Multistatus:
        try:
            return multistatus(answer.body)
        except Unreadable as error:
            raise SourceError(
                f"The server's answer cannot be read: {error}.", remedy=CHECK_ADDRESS, retry_after=self.pause
            ) from None


DATA = "<c:calendar-data/>"


def tag_of(etags: Iterable[tuple[str, str]]) -> str:
    """Empty if one has no ETag: then nothing shows whether it has changed."""
    found = sorted(etags)
    return digest(repr(found)) if all(etag for _, etag in found) else ""


def _propfind(properties: str) -> str:
    return f"{XML}<d:propfind {NAMESPACES}><d:prop>{properties}</d:prop></d:propfind>"


def _query(properties: str, start: datetime, until: datetime | None) -> str:
    end = f' end="{_in_utc(until)}"' if until else ""
    return (
        f'{XML}<c:calendar-query {NAMESPACES}><d:prop>{properties}</d:prop><c:filter><c:comp-filter name="VCALENDAR">'
        f'<c:comp-filter name="VEVENT"><c:time-range start="{_in_utc(start)}"{end}/></c:comp-filter></c:comp-filter></c:filter>'
        "</c:calendar-query>"
    )


def _in_utc(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y%m%dT%H%M%SZ}"


def _is_collection(one: Resource) -> bool:
    kind = one.properties.first(DAV, "resourcetype")
    return kind is not None and kind.has(DAV, "collection")
