"""The process that parses one calendar, in isolation (`runs.processes.isolation`). A rule of a stranger's invitation may recur a million
times, or be looked for until the year 9999: each series has its own time, and one that takes longer is left out.

It gets the request in JSON, a newline and the calendar; it answers the entries and the occurrences in JSON. A calendar whose events
are kept one by one comes as a list of `documents`, each with a name and its size in bytes: the name is the id of its event.
"""

import json
import re
import signal
import sys
import time as clock
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from importlib import import_module
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

MOST_ANSWER = 48 * 2**20  # bytes
MOST_ENTRIES = 3_000  # that are not over
MOST_OCCURRENCES = 500  # of one series, in the view
MOST_COUNTED = 2_000  # occurrences of a series until its last one
MOST_PEOPLE = 100
LONGEST = 1_000  # characters of a text, except of a description
SERIES_SECONDS, SHORTEST_SECONDS = 1.0, 0.05  # of processor time for one series, and if many have taken long
SPENT_SECONDS = 10.0  # of all series, after which each has the shortest time
ZONES = re.compile(rb"^BEGIN:VTIMEZONE\r?$.*?^END:VTIMEZONE\r?$", re.MULTILINE | re.DOTALL | re.IGNORECASE)
KEPT = timedelta(days=1)  # what is over
OFTEN = ("SECONDLY", "MINUTELY")


class Costly(Exception):
    """A series takes too long."""


def main() -> None:
    asked, _, body = sys.stdin.buffer.read().partition(b"\n")
    answer = json.dumps(found_in(body, json.loads(asked))).encode()
    if len(answer) > MOST_ANSWER:
        raise MemoryError
    sys.stdout.buffer.write(answer)


def found_in(body: bytes, asked: Mapping[str, Any]) -> dict[str, Any]:
    if "documents" in asked:
        return _found_in_documents(body, asked)
    try:
        calendars = [one for one in _calendars(body) if one.name == "VCALENDAR"]
    except Exception as error:  # the parser raises what it likes
        return _wrong(f"The answer is no calendar: {type(error).__name__}.")
    if not calendars:
        return _wrong("The answer is no calendar.")
    parsing = _Parsing(asked)
    for calendar in calendars:
        parsing.read(calendar)
    return _answer(parsing)


def _found_in_documents(body: bytes, asked: Mapping[str, Any]) -> dict[str, Any]:
    """One that cannot be read is left out."""
    parsing = _Parsing(asked)
    begin = 0
    for name, size in asked["documents"]:
        document = body[begin : begin + size]
        begin += size
        try:
            calendars = _calendars(document)
            for calendar in calendars:
                parsing.read(calendar, name)
            if not calendars:
                parsing.left_out[name] = "it has no calendar"
        except Exception as error:  # the parser raises what it likes
            parsing.left_out[name] = f"it cannot be read: {type(error).__name__}"
    return _answer(parsing)


def _answer(parsing: "_Parsing") -> dict[str, Any]:
    if len(parsing.entries) > MOST_ENTRIES:
        return _wrong(f"The calendar has more than {MOST_ENTRIES:,} events to come.", "Publish a smaller calendar.")
    return {
        "entries": list(parsing.entries.values()),
        "occurrences": parsing.occurrences,
        "left_out": parsing.left_out,
    }


def _calendars(body: bytes) -> list[Any]:
    # Not for the processes that only know of this module. Its types differ from version to version.
    icalendar: Any = import_module("icalendar")
    icalendar.Component.ignore_exceptions = True  # a line that cannot be read is left out, not the calendar
    try:
        found: list[Any] = icalendar.Calendar.from_ical(body, multiple=True)
    except Exception:  # a zone that cannot be read: its name may be known
        found = icalendar.Calendar.from_ical(ZONES.sub(b"", body), multiple=True)
    return found


class _Parsing:
    def __init__(self, asked: Mapping[str, Any]) -> None:
        self.asked_zone = _zone(asked["zone"])
        self.began = clock.process_time()
        self.now = datetime.fromisoformat(asked["now"])
        self.view = tuple(map(datetime.fromisoformat, asked["view"])) if asked["view"] else None
        self.zone: tzinfo = UTC
        self.own_zone: tzinfo | None = None  # of the calendar
        self.entries: dict[str, dict[str, Any]] = {}
        self.occurrences: list[dict[str, Any]] = []
        self.left_out: dict[str, str] = {}

    def read(self, calendar: Any, name: str = "") -> None:
        """`name` is the id of its event; empty: each is known by its UID."""
        self.own_zone = _zone(str(calendar.get("X-WR-TIMEZONE", "")))
        self.zone = self.asked_zone or self.own_zone or UTC
        by_id: defaultdict[str, list[Any]] = defaultdict(list)
        for event in calendar.walk("VEVENT"):
            by_id[name or _uid(event)].append(event)
        for id, events in by_id.items():
            spent = clock.process_time() - self.began
            try:
                with _seconds(max(SERIES_SECONDS * (1 - spent / SPENT_SECONDS), SHORTEST_SECONDS)):
                    there = self._latest(events)
                    entries, occurrences = self._entries(id, there), self._occurrences(id, there)
            except Costly:
                self.left_out[id] = "its rule takes too long to follow"
            except (
                ValueError,
                TypeError,
                KeyError,
                AttributeError,
                LookupError,
                OverflowError,
                RecursionError,
            ) as error:
                self.left_out[id] = f"it cannot be read: {type(error).__name__}"
            else:
                self.entries |= entries
                self.occurrences += occurrences

    def _latest(self, events: Sequence[Any]) -> Sequence[Any]:
        """Of an event that stands there more than once, the last version. With times in the calendar's own zone."""
        if self.own_zone:
            x_wr_timezone: Any = import_module("x_wr_timezone")
            events = list(map(x_wr_timezone.UTCChangingWalker(self.own_zone).walk_event, events))
        if len(events) > 1:
            events = list({self._original(event): event for event in sorted(events, key=_version)}.values())
        return events

    def _entries(self, whole: str, events: Sequence[Any]) -> dict[str, dict[str, Any]]:
        found = {}
        # An occurrence that is taken out and there as well is there.
        for event in sorted(events, key=lambda one: "RECURRENCE-ID" in one):
            original = self._original(event)
            over_at = self._over_at(event)
            if over_at is None or over_at >= self.now - KEPT:
                id, series = (f"{whole}/{original.isoformat()}", whole) if original else (whole, "")
                found[id] = self._entry(id, series, over_at, self._data(event, id, series, original))
            if not original:
                found |= {one["id"]: one for one in self._left_free(event, whole)}
        return found

    def _left_free(self, event: Any, whole: str) -> Iterator[dict[str, Any]]:
        """The occurrences to come that are taken out of the series: they are cancelled."""
        length = self._end(event) - self._start(event)
        given = event.get("EXDATE", [])
        for dates in given if isinstance(given, list) else [given]:
            for each in dates.dts[:MOST_ENTRIES]:
                start = self._aware(each.dt)
                if start < self.now:
                    continue
                original = start.astimezone(UTC)
                id = f"{whole}/{original.isoformat()}"
                data = self._data(event, id, whole, original)
                times = {"starts_at": start.isoformat(), "ends_at": (start + length).isoformat()}
                data |= {**times, "status": "cancelled", "recurrence": []}
                yield self._entry(id, whole, start + length, data)

    def _occurrences(self, whole: str, events: Sequence[Any]) -> list[dict[str, Any]]:
        if self.view is None:
            return []
        recurs = any("RRULE" in event or "RDATE" in event for event in events)
        found = list(self._in_view(events) if recurs else events)
        occurrences = []
        for event in found:
            start = self._start(event)
            if self.view[0] < start < self.view[1]:
                original = self._original(event) or (start.astimezone(UTC) if recurs else None)
                id = f"{whole}/{original.isoformat()}" if original else whole
                data = self._data(event, id, whole if original else "", original)
                occurrences.append({"id": id, "data": {**data, "recurrence": []}})
        if len(occurrences) > MOST_OCCURRENCES:
            raise Costly
        return occurrences

    def _in_view(self, events: Sequence[Any]) -> Sequence[Any]:
        icalendar: Any = import_module("icalendar")
        recurring_ical_events: Any = import_module("recurring_ical_events")
        if any(str(rule).upper() in OFTEN for event in events for rule in _rule(event).get("FREQ", ())):
            raise Costly
        one = icalendar.Calendar()
        for event in events:
            one.add_component(event)
        assert self.view  # noqa: S101  (asked before)
        day = timedelta(days=1)  # times without a zone are compared as if they had another one
        found: Sequence[Any] = recurring_ical_events.of(one).between(self.view[0] - day, self.view[1] + day)
        return found

    def _entry(self, id: str, series: str, over_at: datetime | None, data: dict[str, Any]) -> dict[str, Any]:
        return {"id": id, "series": series, "over_at": over_at and over_at.isoformat(), "data": data}

    def _over_at(self, event: Any) -> datetime | None:
        """When it is over; None: its rule does not say."""
        end = self._end(event)
        if "RDATE" in event:
            return None
        if "RRULE" not in event:
            return end
        until = _rule(event).get("UNTIL", [])
        if not until:
            return self._over_by_count(event, end)
        try:
            # The rule may be of a zone behind UTC, and the last day counts.
            return self._aware(until[0]) + (end - self._start(event)) + timedelta(days=1)
        except OverflowError:  # the year 9999 stands for no end
            return None

    def _over_by_count(self, event: Any, end: datetime) -> datetime | None:
        count = _rule(event).get("COUNT", [])
        if not count or count[0] > MOST_COUNTED:
            return None
        rrule: Any = import_module("dateutil.rrule")
        start = self._start(event)
        rule = rrule.rrulestr(event["RRULE"].to_ical().decode(), dtstart=start.replace(tzinfo=None))
        last = deque(islice(rule, MOST_COUNTED), maxlen=1)
        return last[0].replace(tzinfo=start.tzinfo) + (end - start) if last else end

    def _data(self, event: Any, id: str, series: str, original: datetime | None) -> dict[str, Any]:
        start, end = self._start(event), self._end(event)
        for at in (start, end):
            at.astimezone(UTC)  # raises what a time at the end of the calendar costs others
        given = event.get("ATTENDEE", [])
        people = [_person(one) for one in (given if isinstance(given, list) else [given])[:MOST_PEOPLE]]
        organizer = event.get("ORGANIZER")
        link = _short(event, "URL")
        return {
            "id": id,
            "uid": _uid(event),
            "series": series,
            "title": _short(event, "SUMMARY"),
            "description": str(event.get("DESCRIPTION", ""))[:20_000],
            "location": _short(event, "LOCATION"),
            "link": link if link.startswith("http") else "",
            "meeting": _short(event, "CONFERENCE") or _short(event, "X-GOOGLE-CONFERENCE"),
            "starts_at": start.isoformat(),
            "ends_at": end.isoformat(),
            "original": original and original.isoformat(),
            "zone": str(getattr(start.tzinfo, "key", None) or start.tzinfo),
            "is_all_day": _is_day(event),
            "status": _short(event, "STATUS").lower(),
            "recurrence": [f"{name}:{_text(event, name)}" for name in ("RRULE", "RDATE") if name in event],
            "organizer": _person(organizer) if organizer else {},
            "people": people,
            "updated_at": _text(event, "LAST-MODIFIED"),
        }

    def _original(self, event: Any) -> datetime | None:
        found = event.get("RECURRENCE-ID")
        return self._aware(found.dt).astimezone(UTC) if found else None

    def _start(self, event: Any) -> datetime:
        return self._aware(event["DTSTART"].dt)

    def _end(self, event: Any) -> datetime:
        if "DTEND" in event:
            return self._aware(event["DTEND"].dt)
        if "DURATION" in event:
            length: timedelta = event["DURATION"].dt
            return self._start(event) + length
        return self._aware(event["DTSTART"].dt + timedelta(days=1)) if _is_day(event) else self._start(event)

    def _aware(self, found: Any) -> datetime:
        if isinstance(found, tuple):  # a period
            found = found[0]
        if not isinstance(found, datetime):
            found = datetime.combine(found, time())
        aware: datetime = found if found.tzinfo else found.replace(tzinfo=self.zone)
        return aware


@contextmanager
def _seconds(seconds: float) -> Iterator[None]:
    """So much processor time; then Costly is raised where the code is."""

    def stop(*_: Any) -> None:
        raise Costly

    signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, SHORTEST_SECONDS)  # again, where it is caught
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _uid(event: Any) -> str:
    uid = str(event.get("UID", "")) or f"{event.get('SUMMARY', '')} {_text(event, 'DTSTART')}"
    return uid[:LONGEST]


def _rule(event: Any) -> Mapping[str, Any]:
    found = event.get("RRULE", {})
    rule: Mapping[str, Any] = found[0] if isinstance(found, list) else found
    return rule


def _version(event: Any) -> tuple[int, str, bytes]:
    said = str(event.get("SEQUENCE", ""))
    number = int(said) if said.isascii() and said.isdigit() and len(said) < 10 else 0
    return number, _text(event, "LAST-MODIFIED"), event.to_ical()


def _short(event: Any, name: str) -> str:
    return str(event.get(name, ""))[:LONGEST]


def _text(event: Any, name: str) -> str:
    found = event.get(name)
    values = found if isinstance(found, list) else [] if found is None else [found]
    return ",".join(value.to_ical().decode(errors="replace") for value in values)[:1_000]


def _is_day(event: Any) -> bool:
    found = event["DTSTART"].dt
    return isinstance(found, date) and not isinstance(found, datetime)


def _person(one: Any) -> dict[str, str]:
    parameters = getattr(one, "params", {})
    address = str(one)
    return {
        "name": str(parameters.get("CN", ""))[:LONGEST],
        "address": address[7:][:LONGEST] if address.lower().startswith("mailto:") else "",
        "response": str(parameters.get("PARTSTAT", ""))[:LONGEST].lower().replace("_", "-"),
    }


def _zone(name: str) -> tzinfo | None:
    try:
        return ZoneInfo(name) if name else None
    except (ValueError, OSError, LookupError):
        return None


def _wrong(
    error: str, remedy: str = "Enter the address of the calendar in iCal format, not that of its page."
) -> dict[str, Any]:
    return {"error": error, "remedy": remedy}
