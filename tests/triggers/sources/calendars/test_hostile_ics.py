"""What strangers and careless servers write into a calendar costs its own entry at most, and never the rest of the calendar."""

import json
import time
from datetime import timedelta

import pytest

from tests.support.list_server import ListServer, Page
from tests.triggers.sources.calendars.conftest import said, soon
from tests.triggers.sources.calendars.test_ics import calendar, event, parsed, polled, raw
from tests.triggers.sources.calendars.test_ics import parsed_here as parsed_here
from triggers.models import CalendarEntry
from triggers.sources.calendars import ics_parser

pytestmark = pytest.mark.django_db

ODD = [
    ["DTSTART;TZID=America/New_York:99991231T230000"],
    ["DTSTART:99991231T230000Z", "DURATION:P2D"],
    ["DTSTART;TZID=Europe/Vienna:00010101T000000", "RRULE:FREQ=YEARLY"],
    ["DTSTART;TZID=Pacific/Auckland:00010101T000000", "DTEND;TZID=Pacific/Auckland:99991231T230000"],
    ["DTSTART:20300101T000000Z", "DURATION:P9999999999D"],
    ["DTSTART:20300101T000000Z", "STATUS:\x00CONFIRMED\ud800".encode("utf-8", "surrogatepass").decode("latin-1")],
    ["DTSTART:20300101T000000Z", "SUMMARY:a\x00", "LOCATION:\x00", "ATTENDEE;CN=\x00:mailto:a\x00@example.org"],
    ["DTSTART:20300101T000000Z", "BEGIN:VALARM", "TRIGGER:nonsense", "END:VALARM"],
    ["DTSTART:20300101T000000Z", "ATTENDEE;CN=\"a", "EXDATE:nonsense", "DTEND:x"],
    ["DTSTART:20300101T000000Z", "RRULE:FREQ=DAILY;INTERVAL=0"],
    ["DTSTART:20300101T000000Z", "RRULE:FREQ=DAILY;INTERVAL=99999999999999999999999"],
    ["DTSTART:20300101T000000Z", "RRULE:FREQ=DAILY;UNTIL=99991231T235959Z"],
    ["DTSTART;TZID=Nowhere/At All:20300101T000000"],
    ["DTSTART:20300101T000000Z", "RDATE;VALUE=PERIOD:20300102T000000Z/PT1H,20300103T000000Z/PT1H"],
    ["DTSTART:20300101T000000Z", "RECURRENCE-ID:99991231T230000Z"],
    ["DTSTART:20300101T000000Z", "UID:second"],
    ["DTSTART:20300101T000000Z", "DTSTART:20310101T000000Z"],
    ["DTSTART:20300101T000000Z", "SUMMARY:one", "SUMMARY:two", "STATUS:A", "STATUS:B", "SEQUENCE:x"],
]  # fmt: skip
BESIDE = [
    "BEGIN:VTIMEZONE\r\nTZID:Broken\r\nEND:VTIMEZONE",
    "BEGIN:VTIMEZONE\r\nTZID:Rule\r\nBEGIN:STANDARD\r\nDTSTART:19700101T000000\r\nRRULE:FREQ=SECONDLY\r\nTZOFFSETFROM:+0100"
    "\r\nTZOFFSETTO:+0200\r\nEND:STANDARD\r\nEND:VTIMEZONE",
    "BEGIN:VTIMEZONE\r\nTZID:Far\r\nBEGIN:STANDARD\r\nDTSTART:nonsense\r\nTZOFFSETFROM:+9900\r\nTZOFFSETTO:x\r\nEND:STANDARD"
    "\r\nEND:VTIMEZONE",
    "BEGIN:VTODO\r\nDUE:nonsense\r\nEND:VTODO",
    "METHOD:\x00",
    "nonsense without a colon",
]


def test_an_id_that_stands_twice_in_a_calendar_is_one_event(site: ListServer) -> None:
    at = soon(hours=3)
    series = event("s", at, "RRULE:FREQ=DAILY;COUNT=3", f"EXDATE:{at + timedelta(days=1):%Y%m%dT%H%M%SZ}")
    exception = event("s", at + timedelta(days=1, hours=1), f"RECURRENCE-ID:{at + timedelta(days=1):%Y%m%dT%H%M%SZ}")
    source = polled(site, event("a", at, title="Old"), event("a", at, "SEQUENCE:1", title="New"), series, exception)
    source.poll()

    assert CalendarEntry.objects.count() == 3
    assert CalendarEntry.objects.get(data__uid="a").data["title"] == "New"
    site.pages["/a.ics"] = Page(
        calendar(event("a", at, "SEQUENCE:1", title="New"), event("a", at, title="Old"), series, exception)
    )
    assert source.poll() == []


def test_an_event_that_cannot_be_read_any_more_is_not_cancelled(site: ListServer) -> None:
    at = soon(days=2)
    source = polled(site, event("a", at), event("b", at))
    source.poll()
    site.pages["/a.ics"] = Page(calendar(event("a", at, "RRULE:FREQ=SECONDLY"), raw("b", "DTSTART:nonsense")))

    assert source.poll() == []
    site.pages["/a.ics"] = Page(calendar(event("b", at)))
    assert said(source.poll()) == [("cancelled", "a")]


def test_odd_events_do_not_keep_the_others_from_their_starts(site: ListServer) -> None:
    odd = [raw(f"odd {number}", *lines) for number, lines in enumerate(ODD)]
    source = polled(site, *odd, event("good", soon(hours=1)))
    source.poll()
    assert "good" in [title for title, _ in source.waiting]
    assert source.poll() == []


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "Nowhere/At All", ""])
def test_what_is_odd_beside_the_events_does_not_keep_them_from_their_starts(zone: str) -> None:
    odd = [raw(f"odd {number}", *lines) for number, lines in enumerate(ODD)] if zone == "Asia/Tokyo" else []
    found = parsed(calendar(f"X-WR-TIMEZONE:{zone}", *BESIDE, *odd, event("good", soon(hours=1))), soon())

    assert "good" in [one["id"] for one in found["occurrences"]]


def test_a_large_event_that_recurs_each_hour_does_not_make_the_calendar_too_large() -> None:
    people = [f"ATTENDEE;CN={'x' * 2000}:mailto:{number}@example.org" for number in range(1_000)]
    large = event("large", soon(days=-1), "RRULE:FREQ=HOURLY", f"LOCATION:{'y' * 100_000}", *people)
    found = ics_parser.found_in(
        calendar(large, event("good", soon(hours=1))),
        {"now": soon().isoformat(), "view": [soon().isoformat(), soon(days=8).isoformat()], "zone": ""},
    )

    assert len(json.dumps(found)) < ics_parser.MOST_ANSWER


def test_a_series_that_has_ended_by_its_count_is_not_cancelled_when_it_leaves(site: ListServer) -> None:
    ended = event("ended", soon(days=-10, hours=-1), "RRULE:FREQ=DAILY;COUNT=10")
    source = polled(site, ended, event("on", soon(days=-10), "RRULE:FREQ=DAILY;COUNT=40"), events="changes")
    source.poll()
    site.pages["/a.ics"] = Page(calendar())

    assert said(source.poll()) == [("cancelled", "on")]


def test_a_series_that_is_new_has_one_event_also_if_occurrences_are_taken_out_of_it(site: ListServer) -> None:
    at = soon(days=2)
    source = polled(site, events="changes")
    source.poll()
    without = [f"EXDATE:{at + timedelta(days=day):%Y%m%dT%H%M%SZ}" for day in (1, 2)]
    site.pages["/a.ics"] = Page(calendar(event("s", at, "RRULE:FREQ=DAILY;COUNT=9", *without)))

    assert said(source.poll()) == [("created", "s")]


def test_many_series_that_are_made_to_cost_time_leave_time_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ics_parser, "SERIES_SECONDS", 0.1)
    monkeypatch.setattr(ics_parser, "SPENT_SECONDS", 0.2)
    monkeypatch.setattr(ics_parser, "SHORTEST_SECONDS", 0.01)
    costly = [event(f"bad {each}", soon(days=-1), "RRULE:FREQ=HOURLY;BYMONTH=2;BYMONTHDAY=30") for each in range(20)]
    asked = {"now": soon().isoformat(), "view": [soon().isoformat(), soon(days=8).isoformat()], "zone": ""}
    before = time.process_time()

    found = ics_parser.found_in(calendar(*costly, event("good", soon(hours=1))), asked)

    assert len(found["left_out"]) == 20 and [one["id"] for one in found["occurrences"]] == ["good"]
    assert time.process_time() - before < 20 * 0.1
