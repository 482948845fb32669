"""Google Calendar: its changes by a sync token, and what starts by a list in which the server has expanded the series."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from math import ceil
from typing import Any
from urllib.parse import quote, urlencode
from uuid import UUID

from triggers.models import CalendarEntry, PushChannel
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
from triggers.sources.calendars.entry import CANCELLED, Entry, Look, Occurrence, View, data_of
from triggers.sources.calendars.push import stop, watched
from triggers.sources.calendars.reader import CalendarReader, cases
from triggers.sources.kind import register
from triggers.sources.polling.by_connection import Account, pages
from triggers.sources.polling.poller import Polled
from triggers.sources.runner import Assignment, Reader, SourceError

API = "https://www.googleapis.com/calendar/v3"
PAGE, MOST_PAGES, PAGES_OF_STARTS = 250, 12, 4
EXPIRED = 410  # the sync token: everything is listed again
PERIODS = {"DAILY": 1, "WEEKLY": 7}  # days
PLAIN = frozenset({"FREQ", "COUNT", "INTERVAL", "WKST"})  # parts of a rule
UNTIL = re.compile(r"UNTIL=(\d{4})(\d\d)(\d\d)")
NO_MEETINGS = frozenset({"workingLocation", "birthday"})
REMEDY = (
    "Check that the connection may read calendars, that its project has the Google Calendar API, and the calendar's id."
)


@register
class GoogleCalendar(AccountCalendar[AccountSettings]):
    name = "calendar_of_google"
    label = "Google Calendar, by a connection"
    help_text = "Polls a calendar by a connection: events made, changed or cancelled, and those about to start."
    settings_class = AccountSettings
    cases = cases("connection", more=("calendar",))
    setup = (
        "Make a connection to Google that may *Read your calendars*, connect it, and enter its name.",
        "For another calendar than your own, copy its *Calendar ID* from its settings, under *Integrate calendar*.",
    )
    docs_url = "https://developers.google.com/workspace/calendar/api/guides/sync"

    def saved(self, source_id: UUID) -> None:
        PushChannel.objects.filter(source_id=source_id).delete()  # the poller makes another one, if it reads on

    def connect(self, assignment: Assignment[AccountSettings]) -> Reader:
        settings = assignment.settings
        return GoogleReader(assignment, target=f"{settings.connection} {settings.calendar}")


class GoogleReader(CalendarReader):
    def poll(self, state: dict[str, Any]) -> Polled:
        self.account = self._account()
        polled = super().poll(state)
        channel, write = watched(self.account, API, self._calendar, state.get("push", {}), self.source_id)
        kept = [act for act in (polled.keep, write) if act]

        def keep() -> None:
            for act in kept:
                act()

        return replace(polled, state={**polled.state, "push": channel}, keep=keep if kept else None)

    def leave(self) -> None:
        stop(self._account(), API, self.state.get("push", {}))

    def _account(self) -> Account:
        return Account(self.settings.connection, pause=self.settings.pause, remedy=REMEDY)

    @property
    def _calendar(self) -> str:
        return f"{API}/calendars/{quote(self.settings.calendar or 'primary', safe='')}"

    def look(self, cursor: Any, view: View | None, now: datetime) -> Look:
        account = self.account
        token = (cursor or {}).get("token", "")
        found = self._changes(account, {"syncToken": token}) if token else None
        is_whole = found is None
        if found is None:  # at first, and after the token has expired: what has changed meanwhile is compared
            found = self._changes(account, {"timeMin": (now - CalendarEntry.KEPT).isoformat()})
        if found is None:
            raise SourceError(
                f"The calendar has more than {PAGE * MOST_PAGES:,} events to come.", retry_after=self.settings.pause
            )
        items, last = last_states(found[0]), found[1]
        wanted = view or (self.whole_view(now) if items and self.wants_starts() else None)
        zone = zone_of(str(last.get("timeZone", "")))
        entries, left_out = entries_of([one for one in items if not _is_gone(one)], partial(_entry, zone=zone))
        gone = [] if is_whole else [str(one.get("id")) for one in items if _is_gone(one)]
        return Look(
            cursor={"token": last.get("nextSyncToken", "")},
            entries=entries if items or is_whole else None,
            gone=gone,
            is_whole=is_whole,
            occurrences=self._occurrences(account, wanted) if wanted else None,
            left_out=left_out,
        )

    def _changes(
        self, account: Account, which: Mapping[str, str]
    ) -> tuple[list[dict[str, Any]], dict[str, Any]] | None:
        return self._list(account, {**which, "singleEvents": "false"}, MOST_PAGES)

    def _occurrences(self, account: Account, view: View) -> Sequence[Occurrence]:
        times = {"timeMin": view.start.isoformat(), "timeMax": view.until.isoformat()}
        asked = {**times, "singleEvents": "true", "orderBy": "startTime"}
        found = self._list(account, asked, PAGES_OF_STARTS, may_be_cut=True)
        items, last = found or ([], {})
        zone = zone_of(str(last.get("timeZone", "")))
        meetings = [one for one in items if not _is_gone(one) and one.get("eventType") not in NO_MEETINGS]
        made, _ = entries_of(meetings, partial(_entry, zone=zone))
        return [
            Occurrence(id=one.id, starts_at=moment(one.data["starts_at"]).astimezone(UTC), data=one.data)
            for one in made
        ]

    def _list(
        self, account: Account, asked: Mapping[str, str], most: int, *, may_be_cut: bool = False
    ) -> tuple[list[dict[str, Any]], dict[str, Any]] | None:
        first = f"{self._calendar}/events?{urlencode({**asked, 'maxResults': PAGE})}"
        number = 0

        def following(page: dict[str, Any]) -> str:
            nonlocal number
            number += 1
            token = page.get("nextPageToken")
            return f"{first}&{urlencode({'pageToken': token})}" if token and not (may_be_cut and number == most) else ""

        return pages(lambda url: account.json(url, allowed=(EXPIRED,)), first, "items", following, most)


def _is_gone(one: Mapping[str, Any]) -> bool:
    """Deleted, with no more than its id. An occurrence that is cancelled has the start that its series gives."""
    return one.get("status") == CANCELLED and not one.get("originalStartTime")


def _entry(one: Mapping[str, Any], zone: tzinfo) -> Entry:
    original, _ = _time(one.get("originalStartTime"), zone)
    start, is_day = _time(one.get("start"), zone)
    start = start or original or datetime.now(UTC)
    end = _time(one.get("end"), start.tzinfo or zone)[0] or start
    rules = [line for line in one.get("recurrence") or () if isinstance(line, str)]
    people = [each for each in one.get("attendees") or () if isinstance(each, dict)]
    own = next((str(each.get("responseStatus", "")) for each in people if each.get("self")), "")
    organizer = one.get("organizer") or {}
    data = data_of(
        id=str(one.get("id")),
        uid=one.get("iCalUID"),
        series=one.get("recurringEventId"),
        title=one.get("summary"),
        description=one.get("description"),
        location=one.get("location"),
        link=one.get("htmlLink"),
        meeting=one.get("hangoutLink"),
        starts_at=start,
        ends_at=end,
        original=original.astimezone(UTC) if original else None,
        zone=name_of(start.tzinfo or UTC),
        is_all_day=is_day,
        status=one.get("status"),
        recurrence=rules,
        organizer={"name": organizer.get("displayName", ""), "address": organizer.get("email", "")},
        people=[
            {"name": each.get("displayName", ""), "address": each.get("email", ""), "response": _response(each)}
            for each in people
        ],
        response="needs-action" if own == "needsAction" else own,
        updated_at=one.get("updated"),
    )
    return Entry(
        id=str(one.get("id")),
        series=str(one.get("recurringEventId") or ""),
        data=data,
        over_at=_over_at(rules, end),
        made_at=moment(one["created"]) if one.get("created") else None,
    )


def _time(found: Any, zone: tzinfo) -> tuple[datetime | None, bool]:
    """A time in its own zone, and whether it is a whole day, which is one of the calendar's zone."""
    if not isinstance(found, dict):
        return None, False
    if found.get("date"):
        return moment(found["date"], zone), True
    if not found.get("dateTime"):
        return None, False
    own = zone_of(str(found.get("timeZone", ""))) if found.get("timeZone") else zone
    return moment(found["dateTime"], own).astimezone(own), False


def _response(each: Mapping[str, Any]) -> str:
    found = str(each.get("responseStatus", ""))
    return "needs-action" if found == "needsAction" else found


def _over_at(rules: Sequence[str], end: datetime) -> datetime | None:
    if not rules:
        return end
    found = UNTIL.search(" ".join(rules))
    return over_after("-".join(found.groups())) if found else _over_by_count(rules, end)


def _over_by_count(rules: Sequence[str], end: datetime) -> datetime | None:
    """At the latest, for rules that have something in each of their periods; None for others. Google does not give the last one."""
    parts = dict(part.split("=", 1) for part in rules[0].removeprefix("RRULE:").split(";") if "=" in part)
    days = PERIODS.get(parts.get("FREQ", ""))
    if len(rules) > 1 or days is None or "COUNT" not in parts or not parts.keys() <= PLAIN | {"BYDAY"}:
        return None
    weekdays = parts.get("BYDAY", "")
    if weekdays and days != 7:
        return None
    periods = ceil(int(parts["COUNT"]) / (weekdays.count(",") + 1)) * int(parts.get("INTERVAL", 1))
    return end + timedelta(days=days * periods)
