"""A calendar at an address: what is made, moved and cancelled is one event each, and each start is one at its time."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from config import retention
from runs.models import OutboxMessage
from tests.support.list_server import ListServer, Page
from tests.triggers.sources.calendars.conftest import Polled, data, said, soon
from triggers.models import CalendarEntry, Event, PoisonMessage
from triggers.sources.calendars import differences, ics, reader
from triggers.sources.calendars import starts as starts_of
from triggers.sources.calendars.entry import instant
from triggers.sources.calendars.ics_parser import found_in
from triggers.sources.kind import kinds
from triggers.sources.runner import SourceError

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def parsed_here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a process for each poll, whose start takes longer than all else."""
    if "process" not in request.node.name:
        monkeypatch.setattr(ics, "in_its_process", lambda body, asked: found_in(body, json.loads(json.dumps(asked))))


def event(uid: str, start: datetime, *lines: str, title: str = "", minutes: int = 30) -> str:
    end = start + timedelta(minutes=minutes)
    times = [f"DTSTART:{start.astimezone(UTC):%Y%m%dT%H%M%SZ}", f"DTEND:{end.astimezone(UTC):%Y%m%dT%H%M%SZ}"]
    return "\r\n".join(["BEGIN:VEVENT", f"UID:{uid}", f"SUMMARY:{title or uid}", *times, *lines, "END:VEVENT"])


def raw(uid: str, *lines: str) -> str:
    return "\r\n".join(["BEGIN:VEVENT", f"UID:{uid}", f"SUMMARY:{uid}", *lines, "END:VEVENT"])


def calendar(*events: str) -> bytes:
    return "\r\n".join(["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:test", *events, "END:VCALENDAR", ""]).encode()


def polled(site: ListServer, *events: str, **settings: Any) -> Polled:
    site.pages["/a.ics"] = Page(calendar(*events))
    return Polled("ics", url=site.url("/a.ics"), **settings)


def parsed(body: bytes, now: datetime, days: int = 8, zone: str = "") -> Mapping[str, Any]:
    view = [now.isoformat(), (now + timedelta(days=days)).isoformat()]
    return found_in(body, {"now": now.isoformat(), "view": view, "zone": zone})


def starts(found: Mapping[str, Any]) -> list[str]:
    return sorted(one["data"]["starts_at"] for one in found["occurrences"])


def test_an_event_that_is_made_changed_and_cancelled_is_an_event_each_time(site: ListServer) -> None:
    at = soon(days=20)
    source = polled(site, event("old", at), events="changes")
    assert source.poll() == []

    for events, expected in [
        ([event("old", at), event("new", at, title="Review")], [("created", "Review")]),
        ([event("old", at), event("new", at, title="Review")], []),
        ([event("old", at), event("new", at, title="Reviews")], [("changed", "Reviews")]),
        ([event("old", at), event("new", at, title="Review")], [("changed", "Review")]),
        ([event("old", at), event("new", at, title="Reviews")], [("changed", "Reviews")]),
        ([event("old", at)], [("cancelled", "Reviews")]),
        ([event("old", at), event("new", at, title="Review")], [("created", "Review")]),
        ([event("old", at), event("new", at, "STATUS:CANCELLED", title="Review")], [("cancelled", "Review")]),
        ([event("old", at)], []),
    ]:
        site.pages["/a.ics"] = Page(calendar(*events))
        assert said(source.poll()) == expected

    assert source.waiting == []


def test_what_has_changed_stands_in_the_event_with_what_it_was(site: ListServer) -> None:
    at = soon(days=3)
    source = polled(site, event("a", at), events="changes")
    source.poll()
    site.pages["/a.ics"] = Page(calendar(event("a", at + timedelta(hours=1), "LOCATION:Room 2")))

    [changed] = source.poll()

    assert data(changed)["changed"] == ["ends_at", "location", "starts_at"]
    assert instant(data(changed)["before"]["starts_at"]) == at
    assert data(changed)["location"] == "Room 2"


def test_what_is_over_is_not_cancelled_when_it_leaves_the_calendar(site: ListServer) -> None:
    source = polled(site, event("past", soon(hours=-2)), events="changes")
    source.poll()
    site.pages["/a.ics"] = Page(calendar(event("other past", soon(hours=-3))))

    assert source.poll() == []
    assert not CalendarEntry.objects.exists()


def test_a_meeting_that_moves_starts_once_at_its_last_time(site: ListServer) -> None:
    at = soon(hours=3)
    source = polled(site, event("a", at), before="10m")
    source.poll()
    for hours in (1, 2, -1, 4, 1):
        site.pages["/a.ics"] = Page(calendar(event("a", at + timedelta(hours=hours))))
        source.poll()

    assert source.waiting == [("a", at + timedelta(minutes=50))]
    assert said(source.later(timedelta(hours=3, minutes=51))) == [("starts", "a")]
    assert source.later(timedelta(hours=9)) == [] and source.poll() == []
    assert Event.objects.filter(type="calendar.starts").count() == 1


def test_a_cancelled_meeting_does_not_start(site: ListServer) -> None:
    at = soon(hours=1)
    source = polled(site, event("a", at), event("b", at), event("c", at), events="starts")
    source.poll()
    site.pages["/a.ics"] = Page(calendar(event("a", at), event("b", at, "STATUS:CANCELLED")))
    assert source.poll() == []

    assert [title for title, _ in source.waiting] == ["a"]


def test_a_meeting_within_the_time_before_starts_at_once(site: ListServer) -> None:
    source = polled(site, event("a", soon(minutes=5)), event("begun", soon(minutes=-5)), before="15m")
    source.poll()

    assert said(source.later(timedelta())) == [("starts", "a")]
    source.poll()
    assert source.waiting == []


def test_a_start_that_was_missed_is_recorded_as_missed_and_not_as_a_start(site: ListServer) -> None:
    source = polled(site, event("a", soon(hours=1)), event("b", soon(hours=2)), before="0s", late="10m")
    source.poll()

    assert said(source.later(timedelta(hours=2, minutes=5))) == [("missed", "a"), ("starts", "b")]
    missed = Event.objects.get(type="calendar.missed")
    assert data(missed)["late_by"] >= 3600


def test_a_poll_that_is_not_recorded_leaves_nothing_and_the_next_one_gives_all_of_it(
    site: ListServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = polled(site, event("a", soon(hours=5)), begin_with="all")
    monkeypatch.setattr(starts_of, "nudge_dispatcher", lambda: 1 / 0)  # at the end of the transaction
    with pytest.raises(ZeroDivisionError):
        source.poll()
    assert not (CalendarEntry.objects.exists() or OutboxMessage.objects.exists() or Event.objects.exists())
    monkeypatch.undo()

    assert said(source.poll()) == [("created", "a")] and len(source.waiting) == 1


def test_nothing_starts_while_the_source_is_disabled(site: ListServer) -> None:
    source = polled(site, event("a", soon(hours=1)))
    source.poll()
    source.source.enabled = False
    source.source.save()

    assert source.later(timedelta(hours=1)) == []
    assert not OutboxMessage.objects.exists()


def test_starts_follow_the_time_before_when_it_is_edited(site: ListServer) -> None:
    at = soon(hours=5)
    source = polled(site, event("a", at), before="15m")
    source.poll()
    source.settings["before"] = "1h"
    source.poll()

    assert source.waiting == [("a", at - timedelta(hours=1))]


def test_a_calendar_that_has_not_changed_is_not_sent_again_but_its_next_days_are_looked_at(site: ListServer) -> None:
    at = soon(days=2)
    site.pages["/a.ics"] = Page(calendar(event("a", at)), headers={"ETag": '"1"'})
    source = Polled("ics", url=site.url("/a.ics"))
    source.poll()
    source.poll()
    assert site.asked[-1][1]["if-none-match"] == '"1"'

    position_of(source)["viewed_at"] = soon(days=-2).isoformat()
    source.source.reading.save()
    source.poll()
    assert "if-none-match" not in site.asked[-1][1]
    assert [title for title, _ in source.waiting] == ["a"]


def test_a_series_keeps_its_time_of_day_over_the_autumn_night_with_its_exceptions() -> None:
    series = raw(
        "standup",
        "DTSTART;TZID=Europe/Vienna:20261021T090000",
        "DURATION:PT15M",
        "RRULE:FREQ=DAILY;COUNT=8",
        "EXDATE;TZID=Europe/Vienna:20261026T090000",
    )
    moved = raw(
        "standup",
        "RECURRENCE-ID;TZID=Europe/Vienna:20261025T090000",
        "DTSTART;TZID=Europe/Vienna:20261025T110000",
        "DURATION:PT15M",
    )
    found = parsed(calendar(series, moved), datetime(2026, 10, 23, 12, tzinfo=UTC))

    assert starts(found) == [
        "2026-10-24T09:00:00+02:00",
        "2026-10-25T11:00:00+01:00",
        "2026-10-27T09:00:00+01:00",
        "2026-10-28T09:00:00+01:00",
    ]
    by_id = {one["id"]: one["data"]["status"] for one in found["entries"]}
    assert by_id["standup/2026-10-26T08:00:00+00:00"] == "cancelled"
    assert set(by_id) == {"standup", "standup/2026-10-26T08:00:00+00:00", "standup/2026-10-25T08:00:00+00:00"}


def test_zones_of_outlook_and_times_without_one_and_whole_days_are_understood() -> None:
    body = calendar(
        raw("outlook", "DTSTART;TZID=W. Europe Standard Time:20261201T090000"),
        raw("floating", "DTSTART:20261201T100000"),
        raw("day", "DTSTART;VALUE=DATE:20261202"),
    )
    found = parsed(body, datetime(2026, 11, 30, tzinfo=UTC), zone="Europe/Vienna")

    assert starts(found) == ["2026-12-01T09:00:00+01:00", "2026-12-01T10:00:00+01:00", "2026-12-02T00:00:00+01:00"]


def test_a_moved_occurrence_takes_its_start_with_it_and_one_taken_out_has_none(site: ListServer) -> None:
    first = soon(hours=2)
    series = event("daily", first, "RRULE:FREQ=DAILY;COUNT=3")
    source = polled(site, series)
    source.poll()
    assert len(source.waiting) == 3

    second, third = first + timedelta(days=1), first + timedelta(days=2)
    moved = event("daily", second + timedelta(hours=1), f"RECURRENCE-ID:{second:%Y%m%dT%H%M%SZ}", title="Later")
    without = event("daily", first, "RRULE:FREQ=DAILY;COUNT=3", f"EXDATE:{third:%Y%m%dT%H%M%SZ}")
    site.pages["/a.ics"] = Page(calendar(without, moved))

    assert said(source.poll()) == [("cancelled", "daily"), ("changed", "Later")]
    assert [due for _, due in source.waiting] == [first - timedelta(minutes=15), second + timedelta(minutes=45)]

    site.pages["/a.ics"] = Page(calendar(without))
    [back] = source.poll()
    assert back.type == "calendar.changed" and instant(data(back)["starts_at"]) == second
    site.pages["/a.ics"] = Page(calendar())
    assert said(source.poll()) == [("cancelled", "daily")]
    assert source.waiting == []


def test_what_is_over_is_forgotten_also_by_a_source_that_is_not_polled(site: ListServer) -> None:
    source = polled(site, event("over", soon(hours=1)), event("ahead", soon(days=1)), events="changes")
    source.poll()
    CalendarEntry.objects.filter(data__uid="over").update(over_at=soon(hours=-25))

    retention.prune()

    assert [row.data["uid"] for row in CalendarEntry.objects.all()] == ["ahead"]


def test_a_clock_that_was_wrong_changes_nothing(site: ListServer, monkeypatch: pytest.MonkeyPatch) -> None:
    class Wrong(datetime):
        off = timedelta()

        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz) + cls.off

    monkeypatch.setattr(reader, "datetime", Wrong)
    source = polled(site, event("a", soon(hours=5)), event("over", soon(hours=-30)))
    source.poll()
    for days in (400, 0, -400, 0):
        Wrong.off = timedelta(days=days)
        assert source.poll() == []

    assert [title for title, _ in source.waiting] == ["a"]
    state = position_of(source)
    state["viewed_at"] = soon(days=400).isoformat()  # by a database whose clock was wrong
    OutboxMessage.objects.all().delete()
    state["starts"] = {}
    source.source.reading.save()
    source.poll()
    assert [title for title, _ in source.waiting] == ["a"]


def test_the_starts_behind_the_soonest_ones_are_looked_at_in_time(
    site: ListServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starts_of, "MOST", 4)
    events = [event(f"e{hour}", soon(hours=hour)) for hour in range(1, 7)]
    site.pages["/a.ics"] = Page(calendar(*events), headers={"ETag": '"1"'})
    source = Polled("ics", url=site.url("/a.ics"))
    source.poll()
    assert [title for title, _ in source.waiting] == ["e1", "e2", "e3", "e4"]
    source.poll()
    assert site.asked[-1][1]["if-none-match"] == '"1"'

    for is_asked_whole in (False, False, True):
        next_one = min(position_of(source)["starts"].values())
        next_one[0] = soon(hours=-1).isoformat()
        source.source.reading.save()
        source.poll()
        assert ("if-none-match" not in site.asked[-1][1]) == is_asked_whole


def position_of(source: Polled) -> dict[str, Any]:
    """What the next poll begins with; to be saved."""
    reading = source.source.reading
    reading.refresh_from_db()
    assert isinstance(reading.position, dict)
    state: dict[str, Any] = reading.position["state"]
    return state


@pytest.mark.parametrize(
    "rule",
    ["FREQ=SECONDLY", "FREQ=MINUTELY", "FREQ=YEARLY;BYHOUR=1,2,3;BYMINUTE=1,2,3;BYMONTH=2;BYMONTHDAY=30"],
)
def test_a_series_that_is_made_to_cost_time_is_left_out_and_shown_and_the_others_are_read(
    site: ListServer, rule: str
) -> None:
    source = polled(site, event("bad", soon(days=-300), f"RRULE:{rule}"), event("good", soon(hours=1)))
    source.poll()

    assert [title for title, _ in source.waiting] == ["good"]
    assert PoisonMessage.objects.filter(message_id="bad").exists() or "FREQ=YEARLY" in rule


@pytest.mark.parametrize(
    "body", [b"", b"<html></html>", b"BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\n", b"BEGIN:VTODO\r\nEND:VTODO\r\n"]
)
def test_what_is_no_calendar_is_an_error_with_a_remedy(site: ListServer, body: bytes) -> None:
    site.pages["/a.ics"] = Page(body)
    source = Polled("ics", url=site.url("/a.ics"))

    with pytest.raises(SourceError, match="no calendar") as refused:
        source.poll()
    assert "iCal format" in refused.value.remedy


def test_all_events_of_a_large_calendar_are_recorded_batch_by_batch(
    site: ListServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(differences, "BATCH", 5)
    there = [event(f"e{number}", soon(days=9)) for number in range(7)]
    source = polled(site, *there, events="changes", begin_with="all")

    assert [len(source.poll()) for _ in range(3)] == [5, 2, 0]


def test_a_calendar_is_parsed_in_a_process_of_its_own(site: ListServer) -> None:
    source = polled(site, event("good", soon(hours=1)), event("bad", soon(days=-300), "RRULE:FREQ=SECONDLY"))
    source.poll()

    assert [title for title, _ in source.waiting] == ["good"]


def test_the_form_asks_for_the_case_first() -> None:
    kind = kinds()["ics"]
    shown = {case.name: case.fields for case in kind.cases}

    assert shown == {"starts": ("url", "before"), "changes": ("url",), "all": ("url", "before")}
    for case in kind.cases:
        defaults = {field.name: field.default for field in kind.fields}
        settings = case.only({**defaults, "url": "https://example.org/a.ics"}, kind.fields)
        assert kind.case_of(settings) == case
        kind.check(settings)
