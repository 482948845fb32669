"""Calendars of Microsoft 365: their changes by a delta of a view of 60 days, and what starts by a list of occurrences."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, urlencode

from triggers.models import CalendarEntry
from triggers.sources.calendars.account import (
    AccountCalendar,
    AccountSettings,
    entries_of,
    last_states,
    moment,
    name_of,
    over_after,
    zone_of,
)
from triggers.sources.calendars.entry import CANCELLED, Entry, Look, Occurrence, View, data_of, instant
from triggers.sources.calendars.reader import CalendarReader, cases
from triggers.sources.kind import register
from triggers.sources.polling.by_connection import Account, pages
from triggers.sources.runner import Assignment, Reader, SourceError

API = "https://graph.microsoft.com/v1.0"
AHEAD, ROLLED = timedelta(days=60), timedelta(days=7)  # the view of changes, and when it moves on
PAGE, MOST_PAGES, PAGES_OF_STARTS = 100, 40, 10
EXPIRED = (404, 410)  # the delta link: everything is listed again
PREFER = {"Prefer": f'outlook.timezone="UTC", odata.maxpagesize={PAGE}'}
REMEDY = "Check that the connection is one for Graph that may read calendars, and the calendar's id."
RESPONSES = {"tentativelyAccepted": "tentative", "notResponded": "needs-action", "none": "needs-action"}


@register
class MicrosoftCalendar(AccountCalendar[AccountSettings]):
    name = "calendar_of_microsoft"
    label = "Microsoft 365 calendar, by a connection"
    help_text = "Polls a calendar by a connection: events made, changed or cancelled, and those about to start."
    settings_class = AccountSettings
    cases = cases("connection", more=("calendar",))
    setup = (
        "Make a connection to Microsoft 365 that may *Read your calendars*, connect it, and enter its name.",
        "For another calendar than your own, enter its id, as GET /me/calendars of Graph Explorer shows it.",
    )
    docs_url = "https://learn.microsoft.com/graph/delta-query-events"

    def connect(self, assignment: Assignment[AccountSettings]) -> Reader:
        settings = assignment.settings
        return MicrosoftReader(assignment, target=f"{settings.connection} {settings.calendar}")


class MicrosoftReader(CalendarReader):
    def look(self, cursor: Any, view: View | None, now: datetime) -> Look:
        account = Account(self.settings.connection, pause=self.settings.pause, remedy=REMEDY)
        is_rolled = bool(cursor) and not AHEAD - ROLLED <= instant(cursor["until"]) - now <= AHEAD
        found, until = None, now + AHEAD
        if cursor and cursor["link"] and not is_rolled:
            found, until = self._list(account, cursor["link"], MOST_PAGES), instant(cursor["until"])
        is_whole = found is None
        if found is None:
            until = now + AHEAD
            first = self._address("/delta", View(start=now - CalendarEntry.KEPT, until=until))
            found = self._list(account, first, MOST_PAGES)
        if found is None:
            raise SourceError(
                f"The calendar has more than {PAGE * MOST_PAGES:,} occurrences in {AHEAD.days} days.",
                retry_after=self.settings.pause,
            )
        items, last = last_states(found[0]), found[1]
        wanted = view or (self.whole_view(now) if items and self.wants_starts() else None)
        gone = [str(one.get("id")) for one in items if "@removed" in one]
        entries, left_out = entries_of([one for one in items if _has_times(one)], _entry)
        return Look(
            cursor={"link": str(last.get("@odata.deltaLink", "")), "until": until.isoformat()},
            entries=entries if items or is_whole else None,
            gone=gone,
            is_whole=is_whole,
            is_moved=is_whole,
            occurrences=self._occurrences(account, wanted) if wanted else None,
            left_out=left_out,
        )

    def _occurrences(self, account: Account, view: View) -> Sequence[Occurrence]:
        first = self._address("", view, {"$orderby": "start/dateTime", "$top": str(PAGE)})
        found = self._list(account, first, PAGES_OF_STARTS, may_be_cut=True)
        if found is None:
            raise SourceError("There is no such calendar.", remedy=REMEDY, retry_after=self.settings.pause)
        entries, _ = entries_of([one for one in found[0] if _has_times(one)], _entry)
        return list(map(_occurrence, entries))

    def _address(self, path: str, view: View, more: Mapping[str, str] | None = None) -> str:
        calendar = f"/calendars/{quote(self.settings.calendar, safe='')}" if self.settings.calendar else ""
        times = {"startDateTime": _in_utc(view.start), "endDateTime": _in_utc(view.until)}
        return f"{API}/me{calendar}/calendarView{path}?{urlencode({**times, **(more or {})})}"

    def _list(
        self, account: Account, first: str, most: int, *, may_be_cut: bool = False
    ) -> tuple[list[dict[str, Any]], dict[str, Any]] | None:
        number = 0

        def following(page: dict[str, Any]) -> str:
            nonlocal number
            number += 1
            return "" if may_be_cut and number == most else str(page.get("@odata.nextLink") or "")

        def ask(url: str) -> tuple[int, dict[str, Any]]:
            return account.json(url, headers=PREFER, allowed=EXPIRED)

        return pages(ask, first, "value", following, most)


def _in_utc(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _has_times(one: Mapping[str, Any]) -> bool:
    return "@removed" not in one and isinstance(one.get("start"), dict) and isinstance(one.get("end"), dict)


def _occurrence(entry: Entry) -> Occurrence:
    starts_at = instant(entry.data["starts_at"])
    # The id of an occurrence changes when it becomes an exception; the start that its series gives does not.
    original = instant(entry.data["original_starts_at"] or entry.data["starts_at"])
    id = f"{entry.series}/{original.isoformat()}" if entry.series else entry.id
    return Occurrence(id=id, starts_at=starts_at, data={**entry.data, "recurrence": []})


def _entry(one: Mapping[str, Any]) -> Entry:
    kind = one.get("type")
    is_day = bool(one.get("isAllDay"))
    zone = zone_of(str(one.get("originalStartTimeZone") or ""))
    start, end = (
        moment(one[name].get("dateTime")).replace(tzinfo=zone)
        if is_day
        else moment(one[name].get("dateTime"), UTC).astimezone(zone)
        for name in ("start", "end")
    )
    original = moment(one["originalStart"]) if one.get("originalStart") and kind == "exception" else None
    series = str(one.get("seriesMasterId") or "")
    pattern = one.get("recurrence") or {}
    organizer = one.get("organizer") or {}
    data = data_of(
        id=str(one.get("id")),
        uid=one.get("iCalUId"),
        series=series,
        title=one.get("subject"),
        description=one.get("bodyPreview"),
        location=(one.get("location") or {}).get("displayName"),
        link=one.get("webLink"),
        meeting=(one.get("onlineMeeting") or {}).get("joinUrl"),
        starts_at=start,
        ends_at=end,
        original=original.astimezone(UTC) if original else None,
        zone=name_of(zone),
        is_all_day=is_day,
        status=CANCELLED if one.get("isCancelled") else "tentative" if one.get("showAs") == "tentative" else "",
        recurrence=[json.dumps(pattern, sort_keys=True)] if pattern else [],
        organizer=_person(organizer),
        people=[{**_person(each), "response": _response(each.get("status"))} for each in one.get("attendees") or ()],
        response=_response(one.get("responseStatus")),
        updated_at=one.get("lastModifiedDateTime"),
    )
    return Entry(
        id=str(one.get("id")),
        series=series,
        data=data,
        over_at=_over_at(pattern, end),
        made_at=moment(one["createdDateTime"]) if one.get("createdDateTime") else None,
        is_plain=kind == "occurrence",
    )


def _over_at(pattern: Mapping[str, Any], end: datetime) -> datetime | None:
    if not pattern:
        return end
    span = pattern.get("range") or {}
    return over_after(span["endDate"]) if span.get("type") == "endDate" else None


def _person(one: Mapping[str, Any]) -> dict[str, str]:
    found = one.get("emailAddress") or {}
    return {"name": str(found.get("name") or ""), "address": str(found.get("address") or "")}


def _response(status: Any) -> str:
    found = str((status or {}).get("response") or "")
    return RESPONSES.get(found, found)
