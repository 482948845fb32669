"""Google Calendar by a connection, against a server that gives the shapes of its reference."""

import json
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from runs.models import Connection
from tests.support.connections import connected
from tests.support.list_server import ListServer, Page
from tests.support.oauth_server import OAuthServer
from tests.triggers.sources.calendars.conftest import Polled, data, said, soon
from triggers.models import PoisonMessage
from triggers.sources.calendars import google
from triggers.sources.calendars.entry import instant
from triggers.sources.runner import SourceError

pytestmark = pytest.mark.django_db


class Calendar(dict[str, Page]):
    """Answers as the server does: `changes` to a sync token, `events` to a first list, `starts` to a list of occurrences."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Any] = []
        self.starts: list[Any] = []
        self.changes: list[Any] = []
        self.token = 1
        self.expired = False
        self.asked: list[dict[str, str]] = []

    def get(self, path: str, default: Any = None) -> Page:
        if path.startswith("POST "):
            return super().get(path) or Page(status=404)
        query = {name: values[0] for name, values in parse_qs(urlsplit(path).query).items()}
        self.asked.append(query)
        if query["singleEvents"] == "true":
            return self.answer(self.starts, query)
        if "syncToken" not in query:
            return self.answer(self.events, query)
        if self.expired or query["syncToken"] != f"t{self.token}":
            return Page(json.dumps({"error": {"code": 410, "message": "Sync token is no longer valid"}}).encode(), 410)
        found = self.changes
        if int(query.get("pageToken", 0)) + 2 >= len(found):
            self.token += bool(found)
            self.changes = []
        return self.answer(found, query)

    def answer(self, items: list[Any], query: dict[str, str]) -> Page:
        first = int(query.get("pageToken", 0))
        last = first + 2
        more = {"nextPageToken": str(last)} if last < len(items) else {"nextSyncToken": f"t{self.token}"}
        page = {"kind": "calendar#events", "timeZone": "Europe/Vienna", "items": items[first:last], **more}
        return Page(json.dumps(page).encode())


@pytest.fixture
def calendar(site: ListServer, provider: OAuthServer, monkeypatch: pytest.MonkeyPatch) -> Calendar:
    monkeypatch.setattr(google, "API", site.url("/calendar/v3"))
    hosts = [urlsplit(site.url()).netloc]
    connected(provider, "work", settings={**provider.settings, "hosts": hosts})
    site.pages = Calendar()
    return site.pages


def event(id: str, at: datetime, **more: Any) -> dict[str, Any]:
    ends = at + timedelta(hours=1)
    times = {"start": {"dateTime": at.isoformat()}, "end": {"dateTime": ends.isoformat()}}
    return {"id": id, "status": "confirmed", "summary": id, "created": "2026-01-01T00:00:00.000Z"} | times | more


def test_changes_come_by_the_sync_token_and_an_expired_one_is_a_comparison(calendar: Calendar) -> None:
    at = soon(days=20)
    calendar.events = [event(name, at) for name in ("a", "b", "c")]
    source = Polled("calendar_of_google", connection="work", events="changes")
    assert source.poll() == [] and source.poll() == []

    calendar.changes = [event("a", at + timedelta(hours=1)), {"id": "b", "status": "cancelled"}, event("d", at)]
    assert said(source.poll()) == [("changed", "a"), ("created", "d"), ("cancelled", "b")]
    assert source.poll() == []

    calendar.expired = True
    calendar.events = [event("a", at + timedelta(hours=1)), event("d", at, summary="D"), event("e", at)]
    assert said(source.poll()) == [("changed", "D"), ("created", "e"), ("cancelled", "c")]
    assert source.poll() == []


def test_starts_are_those_of_the_server_in_their_own_zone_without_what_is_declined(calendar: Calendar) -> None:
    at = soon(hours=3)
    declined = [{"email": "me@example.org", "self": True, "responseStatus": "declined"}]
    zoned = {"start": {"dateTime": at.isoformat(), "timeZone": "America/New_York"}}
    calendar.starts = [event("a", at, **zoned), event("b", at, attendees=declined), event("c", at + timedelta(days=1))]
    source = Polled("calendar_of_google", connection="work", events="starts")
    source.poll()
    assert [title for title, _ in source.waiting] == ["a", "c"]
    [row] = source.later(timedelta(hours=3))
    assert data(row)["zone"] == "America/New_York" and instant(data(row)["starts_at"]) == at

    asked = len(calendar.asked)
    source.poll()
    assert len(calendar.asked) == asked + 1
    calendar.starts, calendar.changes = [], [{"id": "c", "status": "cancelled"}]
    source.poll()
    assert source.waiting == []


def test_an_occurrence_that_is_cancelled_or_moved_has_the_words_of_its_series(calendar: Calendar) -> None:
    at = soon(days=3)
    calendar.events = [event("s", at, recurrence=["RRULE:FREQ=DAILY"], summary="Standup")]
    source = Polled("calendar_of_google", connection="work", events="changes")
    source.poll()
    original = {"recurringEventId": "s", "originalStartTime": {"dateTime": (at + timedelta(days=1)).isoformat()}}
    calendar.changes = [{"id": "s_1", "status": "cancelled", **original}]
    [cancelled] = source.poll()

    assert said([cancelled]) == [("cancelled", "Standup")]
    assert instant(data(cancelled)["starts_at"]) == at + timedelta(days=1)
    moved = {"recurringEventId": "s", "originalStartTime": {"dateTime": (at + timedelta(days=2)).isoformat()}}
    calendar.changes = [event("s_2", at + timedelta(days=2, hours=1), summary="Standup", **moved)]
    [changed] = source.poll()
    assert data(changed)["changed"] == ["starts_at"]
    calendar.changes = [{"id": "s", "status": "cancelled"}]
    assert said(source.poll()) == [("cancelled", "Standup")]


@pytest.mark.parametrize(
    "status, reason, pause", [(429, "", 7), (403, "rateLimitExceeded", 60), (403, "forbidden", 300)]
)
def test_a_provider_that_refuses_gets_no_request_before_the_time_that_it_names(
    site: ListServer, calendar: Calendar, status: int, reason: str, pause: float
) -> None:
    body = {"error": {"message": "No.", "errors": [{"reason": reason}]}}
    calendar.get = lambda path, default=None: Page(  # type: ignore[method-assign]
        json.dumps(body).encode(), status, {"Retry-After": "7"} if status == 429 else {}
    )

    with pytest.raises(SourceError, match=f"answers {status}: No.") as refused:
        Polled("calendar_of_google", connection="work").poll()
    assert refused.value.retry_after == timedelta(seconds=pause)


def test_a_connection_that_is_revoked_is_an_error_with_a_remedy_and_starts_go_on(calendar: Calendar) -> None:
    calendar.starts = [event("a", soon(hours=1))]
    source = Polled("calendar_of_google", connection="work")
    source.poll()
    Connection.objects.update(state="revoked", access_token=None, refresh_token=None)

    with pytest.raises(SourceError, match="is revoked") as refused:
        source.poll()
    assert "connect or test it" in refused.value.remedy
    assert said(source.later(timedelta(minutes=50))) == [("starts", "a")]


def test_the_token_goes_to_the_hosts_of_the_connection_alone(
    site: ListServer, calendar: Calendar, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Polled("calendar_of_google", connection="work")
    source.poll()
    assert site.asked[-1][1]["authorization"].startswith("Bearer ")
    monkeypatch.setattr(google, "API", "https://example.org")

    with pytest.raises(SourceError, match="sends its token to"):
        source.poll()


def test_an_odd_event_and_an_id_that_comes_twice_do_not_stop_the_calendar(calendar: Calendar) -> None:
    at = soon(days=2)
    far = event("far", at, recurrence=["RRULE:FREQ=DAILY;UNTIL=99991231T000000Z"])
    odd = event("odd", at, start={"dateTime": "nonsense"})
    calendar.events = calendar.starts = [far, odd, event("a", at), event("a", at, summary="A")]
    source = Polled("calendar_of_google", connection="work", begin_with="all")

    assert said(source.poll()) == [("created", "far"), ("created", "A")]
    assert PoisonMessage.objects.filter(message_id="odd").exists()
    assert source.poll() == []


def test_a_series_that_has_ended_by_its_count_is_not_cancelled_when_all_is_listed_again(calendar: Calendar) -> None:
    at = soon(days=-15)
    weekly = event("weekly", at, recurrence=["RRULE:FREQ=WEEKLY;COUNT=4;BYDAY=MO,WE,FR"])
    daily = event("daily", at, recurrence=["RRULE:FREQ=DAILY;COUNT=6;INTERVAL=2"])
    on = event("on", at, recurrence=["RRULE:FREQ=DAILY;COUNT=60"])
    calendar.events = [weekly, daily, on]
    source = Polled("calendar_of_google", connection="work", events="changes")
    source.poll()
    calendar.expired, calendar.events = True, []

    assert said(source.poll()) == [("cancelled", "on")]
