"""A calendar of Microsoft 365 by a connection, against a server that gives the shapes of Graph's reference."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.connections import connected
from tests.support.list_server import ListServer, Page
from tests.support.oauth_server import OAuthServer
from tests.triggers.sources.calendars.conftest import Polled, data, said, soon
from triggers.models import PoisonMessage, Reading
from triggers.sources.calendars import microsoft
from triggers.sources.calendars.entry import instant
from triggers.sources.runner import SourceError

pytestmark = pytest.mark.django_db


class Calendar(dict[str, Page]):
    """Answers as Graph does: `view` to a first delta, `changes` to its link, `starts` to a list of occurrences."""

    def __init__(self, site: ListServer) -> None:
        super().__init__()
        self.site = site
        self.view: list[Any] = []
        self.changes: list[Any] = []
        self.starts: list[Any] = []
        self.expired = False
        self.whole = 0
        self.next = ""  # in place of the links

    def get(self, path: str, default: Any = None) -> Page:
        parts = urlsplit(path)
        if "link=" in parts.query:
            if self.expired:
                error = {"code": "SyncStateNotFound", "message": "Resync required."}
                return Page(json.dumps({"error": error}).encode(), 410)
            if "page=2" not in parts.query:
                return self.answer(self.changes[:1], "@odata.nextLink", "?link=1&page=2")
            found, self.changes = self.changes[1:], []
            return self.answer(found, "@odata.deltaLink", "?link=1")
        if parts.path.endswith("/delta"):
            self.whole += 1
            return self.answer(self.view, "@odata.deltaLink", "?link=1")
        return self.answer(self.starts)

    def answer(self, items: list[Any], name: str = "", link: str = "") -> Page:
        more = {name: self.next or self.site.url(f"/v1.0/me/calendarView/delta{link}")} if name else {}
        return Page(json.dumps({"value": items, **more}).encode())


@pytest.fixture
def calendar(site: ListServer, provider: OAuthServer, monkeypatch: pytest.MonkeyPatch) -> Calendar:
    monkeypatch.setattr(microsoft, "API", site.url("/v1.0"))
    hosts = [urlsplit(site.url()).netloc]
    connected(provider, "work", settings={**provider.settings, "hosts": hosts})
    site.pages = Calendar(site)
    return site.pages


def event(id: str, at: datetime, **more: Any) -> dict[str, Any]:
    times = {
        name: {"dateTime": f"{one.astimezone(UTC):%Y-%m-%dT%H:%M:%S}.0000000", "timeZone": "UTC"}
        for name, one in (("start", at), ("end", at + timedelta(hours=1)))
    }
    made = {"createdDateTime": "2026-01-01T00:00:00Z", "originalStartTimeZone": "W. Europe Standard Time"}
    return {"id": id, "subject": id, "type": "singleInstance", **made, **times, **more}


def occurrence(id: str, at: datetime, series: str = "s") -> dict[str, Any]:
    found = event(id, at)
    return {"type": "occurrence", "seriesMasterId": series, **{name: found[name] for name in ("id", "start", "end")}}


def exception(id: str, at: datetime, original: datetime) -> dict[str, Any]:
    return event(id, at, type="exception", subject="s", seriesMasterId="s", originalStart=original.isoformat())


def test_changes_come_by_the_delta_and_an_expired_one_is_a_comparison(calendar: Calendar) -> None:
    at, now = soon(days=20), soon(minutes=1).isoformat()
    calendar.view = [event(name, at) for name in ("a", "b", "c")]
    source = Polled("calendar_of_microsoft", connection="work", events="changes")
    assert source.poll() == [] and source.poll() == []

    removed = {"id": "b", "@removed": {"reason": "deleted"}}
    calendar.changes = [event("a", at + timedelta(hours=1)), removed, event("d", at, createdDateTime=now)]
    assert said(source.poll()) == [("changed", "a"), ("created", "d"), ("cancelled", "b")]
    assert source.poll() == [] and calendar.whole == 1

    calendar.expired = True
    later = [event("d", at, subject="D"), event("e", at, createdDateTime=now)]
    calendar.view = [event("a", at + timedelta(hours=1)), *later]
    assert said(source.poll()) == [("changed", "D"), ("created", "e"), ("cancelled", "c")]
    assert source.poll() == []


def test_an_old_event_that_comes_into_view_is_not_a_new_one(calendar: Calendar) -> None:
    calendar.view = [event("a", soon(days=20))]
    source = Polled("calendar_of_microsoft", connection="work", events="changes")
    source.poll()
    reading = Reading.objects.get()
    assert isinstance(reading.position, dict)
    reading.position["state"]["cursor"]["until"] = soon(days=50).isoformat()
    reading.save()
    calendar.view.append(event("far", soon(days=59)))

    assert source.poll() == [] and calendar.whole == 2
    calendar.changes = [event("far", soon(days=58))]
    assert said(source.poll()) == [("changed", "far")]


def test_an_occurrence_is_moved_or_cancelled_by_itself_and_all_with_their_series(calendar: Calendar) -> None:
    at = soon(days=2)
    days = [at + timedelta(days=number) for number in range(4)]
    master = event("s", at, type="seriesMaster", recurrence={"pattern": {"type": "daily"}, "range": {"type": "noEnd"}})
    calendar.view = [master, *(occurrence(f"o{number}", day) for number, day in enumerate(days))]
    source = Polled("calendar_of_microsoft", connection="work", events="changes")
    assert source.poll() == []

    calendar.changes = [{"id": "o1", "@removed": {}}, exception("x1", days[1] + timedelta(hours=2), days[1])]
    [moved] = source.poll()
    assert moved.type == "calendar.changed" and data(moved)["changed"] == ["starts_at"]
    calendar.changes = [{"id": "o2", "@removed": {}}]
    [cancelled] = source.poll()
    assert said([cancelled]) == [("cancelled", "s")] and instant(data(cancelled)["starts_at"]) == days[2]
    calendar.changes = [{"id": id, "@removed": {}} for id in ("o0", "x1", "s", "o3")]
    assert said(source.poll()) == [("cancelled", "s")]


def test_starts_are_in_the_zone_of_the_event_and_once_for_an_occurrence_that_becomes_an_exception(
    calendar: Calendar,
) -> None:
    at = soon(hours=3)
    calendar.starts = [event("o1", at, type="occurrence", seriesMasterId="s"), event("b", at, isCancelled=True)]
    source = Polled("calendar_of_microsoft", connection="work", events="starts")
    source.poll()
    assert source.waiting == [("o1", at - timedelta(minutes=15))]

    calendar.starts = [exception("x1", at + timedelta(hours=1), at)]
    calendar.changes = [exception("x1", at + timedelta(hours=1), at)]
    source.poll()
    assert source.waiting == [("s", at + timedelta(minutes=45))]
    [start] = source.later(timedelta(hours=4))
    assert data(start)["zone"] == "Europe/Berlin"
    assert datetime.fromisoformat(data(start)["starts_at"]).utcoffset() != timedelta()


def rolled(days: int = 50) -> None:
    """As if the view had been listed at another time; by default, more than a week ago."""
    reading = Reading.objects.get()
    assert isinstance(reading.position, dict)
    reading.position["state"]["cursor"]["until"] = soon(days=days).isoformat()
    reading.save()


def test_a_view_that_a_wrong_clock_has_moved_on_is_listed_again(calendar: Calendar) -> None:
    source = Polled("calendar_of_microsoft", connection="work", events="changes")
    source.poll()
    rolled(days=400)

    assert source.poll() == [] and calendar.whole == 2
    assert source.poll() == [] and calendar.whole == 2


def master(at: datetime, **more: Any) -> dict[str, Any]:
    pattern = {"pattern": {"type": "daily"}, "range": {"type": "noEnd"}}
    return event("s", at, type="seriesMaster", recurrence=pattern) | more


def test_a_series_whose_next_occurrence_is_beyond_the_view_is_not_cancelled_and_one_that_is_deleted_is(
    calendar: Calendar,
) -> None:
    today, later = soon(hours=-30), soon(days=9)
    calendar.view = [master(today), occurrence("o1", today)]
    source = Polled("calendar_of_microsoft", connection="work", events="changes")
    source.poll()
    rolled()
    calendar.view = []
    assert source.poll() == []

    calendar.changes = [master(today, createdDateTime=soon(minutes=1).isoformat()), occurrence("o2", later)]
    assert said(source.poll()) == [("created", "s")]
    rolled()
    assert said(source.poll()) == [("cancelled", "s")]


def test_a_series_that_is_moved_as_a_whole_is_one_change(calendar: Calendar) -> None:
    days = [soon(days=day) for day in range(2, 8)]
    calendar.view = [master(days[0]), *(occurrence(f"o{number}", day) for number, day in enumerate(days))]
    source = Polled("calendar_of_microsoft", connection="work", events="changes")
    source.poll()
    hour = timedelta(hours=1)
    moved = [occurrence(f"o{number}", day + hour) for number, day in enumerate(days[:3])]
    gone = [{"id": f"o{number}", "@removed": {"reason": "deleted"}} for number in (3, 4, 5)]
    new = [occurrence(f"n{number}", day + hour) for number, day in enumerate(days[3:])]
    calendar.changes = [master(days[0] + hour), *moved, *gone, *new]

    assert [event.type for event in source.poll()] == ["calendar.changed"]


def test_an_id_that_comes_more_than_once_has_its_last_state(calendar: Calendar) -> None:
    at = soon(days=2)
    calendar.view = [event("a", at), event("a", at, subject="A"), event("b", at)]
    source = Polled("calendar_of_microsoft", connection="work", events="changes")
    source.poll()
    removed = [{"id": id, "@removed": {"reason": "deleted"}} for id in ("a", "b")]
    calendar.changes = [
        event("b", at, subject="B"),
        *removed,
        event("a", at, subject="A"),
        event("a", at, subject="AA"),
    ]

    assert said(source.poll()) == [("changed", "AA"), ("cancelled", "b")]
    assert source.poll() == []


@pytest.mark.parametrize(
    "link", ["https://example.org/delta?link=1", "http://127.0.0.1:1/delta?link=1", "file:///etc/passwd"]
)
def test_the_link_of_a_page_to_another_server_is_refused(calendar: Calendar, link: str) -> None:
    source = Polled("calendar_of_microsoft", connection="work", events="changes")
    source.poll()
    calendar.next = link

    with pytest.raises(SourceError, match="sends its token to"):
        source.poll()


def test_an_event_that_cannot_be_read_does_not_stop_the_calendar(calendar: Calendar) -> None:
    at = soon(days=2)
    far = {"pattern": {"type": "daily"}, "range": {"type": "endDate", "endDate": "9999-12-31"}}
    odd = [event("far", at, recurrence=far), event("odd", at, start={"dateTime": "nonsense"}, end={"dateTime": None})]
    calendar.view = calendar.starts = [*odd, event("good", at)]
    source = Polled("calendar_of_microsoft", connection="work", begin_with="all")

    assert said(source.poll()) == [("created", "far"), ("created", "good")]
    assert [title for title, _ in source.waiting] == ["far", "good"]
    assert PoisonMessage.objects.filter(message_id="odd").exists()
