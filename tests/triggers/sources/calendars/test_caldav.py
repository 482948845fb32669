"""A calendar of a CalDAV server: what is made, moved and cancelled is one event each, whatever the server offers to find it."""

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.caldav_server import CalDavServer, serving_caldav
from tests.support.connections import connected
from tests.support.list_server import serving_lists
from tests.support.oauth_server import OAuthServer
from tests.triggers.sources.calendars.conftest import Polled, data, said, soon
from tests.triggers.sources.calendars.test_ics import calendar, event, raw
from triggers.models import CalendarEntry, PoisonMessage, Reading
from triggers.sources.calendars import caldav_server, ics, multistatus
from triggers.sources.calendars.entry import instant
from triggers.sources.calendars.ics_parser import found_in
from triggers.sources.kind import kinds
from triggers.sources.runner import SourceError
from triggers.sources.settings import InvalidSettings

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def parsed_here(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a process for each poll, whose start takes longer than all else."""
    if "process" not in request.node.name:
        monkeypatch.setattr(ics, "in_its_process", lambda body, asked: found_in(body, json.loads(json.dumps(asked))))


@pytest.fixture
def server(settings: Any) -> Iterator[CalDavServer]:
    settings.WAKEFUL_HTTP_NETWORKS = ["127.0.0.0/8"]
    with serving_caldav() as server:
        yield server


def polled(server: CalDavServer, **settings: Any) -> Polled:
    return Polled("caldav", secret="app-password", url=server.url(), user="ada", **settings)


def make(server: CalDavServer, uid: str, *arguments: Any, **more: Any) -> None:
    server.put(f"{uid}.ics", calendar(event(uid, *arguments, **more)))


@pytest.mark.parametrize(("has_sync", "has_tag"), [(True, True), (False, True), (False, False)])
def test_an_event_that_is_made_changed_and_deleted_is_an_event_each_time(
    server: CalDavServer, has_sync: bool, has_tag: bool
) -> None:
    server.has_sync, server.has_tag = has_sync, has_tag
    at = soon(days=20)
    make(server, "old", at)
    source = polled(server, events="changes")
    assert source.poll() == [] and source.poll() == []

    make(server, "new", at, title="Review")
    [created] = source.poll()
    make(server, "new", at + timedelta(hours=1), title="Review")
    [changed] = source.poll()
    assert source.poll() == []
    server.delete("new.ics")
    cancelled = source.poll()

    assert said([created, changed, *cancelled]) == [
        ("created", "Review"),
        ("changed", "Review"),
        ("cancelled", "Review"),
    ]
    assert data(changed)["changed"] == ["ends_at", "starts_at"]
    assert (data(created)["id"], data(created)["uid"]) == ("/ada/office/new.ics", "new")
    assert source.poll() == []


@pytest.mark.parametrize("has_sync", [True, False])
def test_an_event_with_another_path_is_the_same_one(server: CalDavServer, has_sync: bool) -> None:
    server.has_sync = has_sync
    at = soon(days=20)
    make(server, "review", at, title="Review")
    source = polled(server, events="changes")
    source.poll()

    server.put("other.ics", server.events["review.ics"])
    server.delete("review.ics")
    assert source.poll() == []

    server.put("third.ics", calendar(event("review", at + timedelta(hours=1), title="Review")))
    server.delete("other.ics")
    [changed] = source.poll()
    assert said([changed]) == [("changed", "Review")] and data(changed)["id"] == "/ada/office/third.ics"
    assert data(changed)["changed"] == ["ends_at", "id", "starts_at"]

    server.delete("third.ics")
    assert said(source.poll()) == [("cancelled", "Review")]
    assert source.poll() == [] and not CalendarEntry.objects.exists()


def test_a_series_with_another_path_keeps_the_occurrences_that_differ(server: CalDavServer) -> None:
    at = soon(days=20)
    original = at + timedelta(days=1)
    moved = event("s", original + timedelta(hours=2), f"RECURRENCE-ID:{original:%Y%m%dT%H%M%SZ}", title="Moved")
    server.put("series.ics", calendar(event("s", at, "RRULE:FREQ=DAILY;COUNT=5"), moved))
    source = polled(server, events="changes")
    source.poll()

    server.put("other.ics", server.events["series.ics"])
    server.delete("series.ics")

    assert source.poll() == []
    assert {row.data["id"].partition("/2")[0] for row in CalendarEntry.objects.all()} == {"/ada/office/other.ics"}
    assert CalendarEntry.objects.count() == 2


def test_a_calendar_without_changes_costs_one_small_request(server: CalDavServer) -> None:
    make(server, "a", soon(days=2))
    source = polled(server)
    source.poll()
    assert server.requests == ["propfind", "calendar-query"]
    source.poll()
    assert server.requests == ["sync-collection"]

    make(server, "b", soon(days=2))
    source.poll()
    assert server.requests == ["sync-collection", "calendar-multiget", "calendar-query"]


def test_a_calendar_without_sync_tokens_is_read_where_its_tags_have_changed(server: CalDavServer) -> None:
    server.has_sync = False
    make(server, "a", soon(days=2))
    source = polled(server, events="changes")
    source.poll()
    _ = server.requests
    source.poll()
    assert server.requests == ["propfind"]

    server.has_tag = False
    source.poll()  # the server has forgotten its tag: the next is of ETags
    _ = server.requests
    source.poll()
    assert server.requests == ["propfind", "calendar-query"]


@pytest.mark.parametrize("status", [None, 400, 403, 409, 410, 412, 507])
def test_a_token_that_has_expired_is_a_comparison_and_cancels_nothing(server: CalDavServer, status: int | None) -> None:
    at = soon(days=20)
    for name in ("kept", "moved", "deleted"):
        make(server, name, at)
    source = polled(server, events="changes")
    source.poll()
    make(server, "moved", at + timedelta(hours=1))
    server.delete("deleted.ics")
    server.forget()
    if status:
        replied = server.replied

        def refused(method: str, path: str, depth: str, root: Any) -> tuple[int, str]:
            return (status, "") if "sync-collection" in root.tag else replied(method, path, depth, root)

        server.replied = refused  # type: ignore[method-assign]

    assert said(source.poll()) == [("changed", "moved"), ("cancelled", "deleted")]
    assert source.poll() == []


def test_changes_that_come_in_parts_are_all_read(server: CalDavServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caldav_server, "PIECE", 2)
    at = soon(days=20)
    source = polled(server, events="changes")
    source.poll()
    server.page = 2
    for number in range(7):
        make(server, f"e{number}", at)
    server.delete("e3.ics")

    assert sorted(said(source.poll())) == [("created", f"e{number}") for number in (0, 1, 2, 4, 5, 6)]
    assert source.poll() == []


def test_more_changes_than_a_poll_reads_are_read_by_the_next_one(
    server: CalDavServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caldav_server, "MOST_PAGES", 2)
    source = polled(server, events="changes")
    source.poll()
    server.page = 1
    for number in range(3):
        make(server, f"e{number}", soon(days=20))

    assert said(source.poll()) == [("created", "e0"), ("created", "e1")]
    assert said(source.poll()) == [("created", "e2")]


def test_more_events_gone_than_a_poll_compares_by_name_are_found_by_the_whole(
    server: CalDavServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caldav_server, "MOST_CHANGED", 2)
    for number in range(4):
        make(server, f"e{number}", soon(days=20))
    source = polled(server, events="changes")
    source.poll()
    for number in range(3):
        server.delete(f"e{number}.ics")
    _ = server.requests

    assert sorted(said(source.poll())) == [("cancelled", f"e{number}") for number in range(3)]
    assert server.requests == ["sync-collection", "propfind", "calendar-query"]


def test_a_part_of_a_calendar_is_an_error_and_cancels_nothing(server: CalDavServer) -> None:
    for number in range(3):
        make(server, f"e{number}", soon(days=20))
    source = polled(server, events="changes")
    source.poll()
    server.forget()
    server.part = 1

    with pytest.raises(SourceError, match="a part of the calendar only"):
        source.poll()
    server.part = None
    assert source.poll() == [] and CalendarEntry.objects.count() == 3


def test_an_occurrence_of_a_series_is_moved_moved_back_and_cancelled(server: CalDavServer) -> None:
    at = soon(days=3)
    series = event("s", at, "RRULE:FREQ=DAILY;COUNT=9", title="Standup")
    moved = event(
        "s", at + timedelta(days=1, hours=1), f"RECURRENCE-ID:{at + timedelta(days=1):%Y%m%dT%H%M%SZ}", title="Standup"
    )
    server.put("s.ics", calendar(series))
    source = polled(server, events="changes")
    source.poll()

    server.put("s.ics", calendar(series, moved))
    [changed] = source.poll()
    assert data(changed)["series"] == "/ada/office/s.ics" and instant(
        data(changed)["original_starts_at"]
    ) == at + timedelta(days=1)
    server.put("s.ics", calendar(series))
    [back] = source.poll()
    assert instant(data(back)["starts_at"]) == at + timedelta(days=1)
    without = event(
        "s", at, "RRULE:FREQ=DAILY;COUNT=9", f"EXDATE:{at + timedelta(days=2):%Y%m%dT%H%M%SZ}", title="Standup"
    )
    server.put("s.ics", calendar(without))
    assert ("cancelled", "Standup") in said(source.poll())
    server.delete("s.ics")
    assert said(source.poll()) == [("cancelled", "Standup")]


def test_starts_are_those_of_all_events_also_after_one_has_changed(server: CalDavServer) -> None:
    at = soon(hours=3)
    make(server, "a", at)
    make(server, "far", soon(days=40))
    server.put("s.ics", calendar(event("s", at + timedelta(hours=1), "RRULE:FREQ=WEEKLY", title="Standup")))
    source = polled(server, before="10m")
    source.poll()
    assert [title for title, _ in source.waiting] == ["a", "Standup", "Standup"]

    make(server, "a", at + timedelta(hours=2))
    source.poll()
    assert source.waiting[:2] == [("Standup", at + timedelta(minutes=50)), ("a", at + timedelta(minutes=110))]
    server.delete("s.ics")
    source.poll()
    assert said(source.later(timedelta(hours=5))) == [("starts", "a")]


def test_an_event_that_cannot_be_read_is_left_out_and_not_cancelled(server: CalDavServer) -> None:
    for name in ("a", "b", "c"):
        make(server, name, soon(days=20))
    source = polled(server, events="changes")
    source.poll()
    server.put("a.ics", b"BEGIN:VCALENDAR\r\nno end")
    server.put("b.ics", calendar(raw("b", "DTSTART:never")))
    server.unreadable.add("c.ics")
    server.log.append("c.ics")

    assert source.poll() == []
    assert sorted(PoisonMessage.objects.values_list("message_id", flat=True)) == [
        f"/ada/office/{name}.ics" for name in "abc"
    ]
    server.forget()
    assert source.poll() == []


@pytest.mark.parametrize(("has_sync", "has_tag"), [(True, True), (False, True), (False, False)])
def test_an_event_that_the_server_gives_later_is_an_event_then(
    server: CalDavServer, has_sync: bool, has_tag: bool
) -> None:
    server.has_sync, server.has_tag = has_sync, has_tag
    make(server, "known", soon(days=20), title="Known")
    source = polled(server, events="changes")
    source.poll()

    make(server, "known", soon(days=21), title="Known")
    make(server, "new", soon(days=20), title="New")
    make(server, "other", soon(days=20), title="Other")
    server.failing = {"known.ics", "new.ics"}
    assert said(source.poll()) == [("created", "Other")]
    assert source.poll() == []

    server.failing.clear()
    assert sorted(said(source.poll())) == [("changed", "Known"), ("created", "New")]
    assert source.poll() == []

    server.failing = {"new.ics"}
    server.log.append("new.ics")
    assert source.poll() == []
    server.delete("new.ics")
    assert said(source.poll()) == [("cancelled", "New")]
    assert source.poll() == []


def test_many_events_that_the_server_does_not_give_are_an_error(
    server: CalDavServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caldav_server, "PIECE", 2)
    for number in range(3):
        make(server, f"e{number}", soon(days=20))
    source = polled(server, events="changes", begin_with="all")
    server.failing = set(server.events)
    with pytest.raises(SourceError, match="for more than 2 of its events"):
        source.poll()

    server.failing.clear()
    assert len(source.poll()) == 3


def test_a_name_that_the_server_escapes_in_two_ways_is_one_event(server: CalDavServer) -> None:
    server.put("a b&c.ics", calendar(event("e", soon(days=20))))
    source = polled(server, events="changes")
    source.poll()
    server._event = lambda name, has_data: CalDavServer._event(server, name, has_data).replace("a b&amp;c", "a%20b%26c")  # type: ignore[method-assign]
    server.forget()

    assert source.poll() == []


def test_a_task_list_in_the_calendar_is_no_event(server: CalDavServer) -> None:
    source = polled(server, events="changes")
    source.poll()
    server.put("todo.ics", b"BEGIN:VCALENDAR\r\nVERSION:2.0\r\nBEGIN:VTODO\r\nUID:t\r\nEND:VTODO\r\nEND:VCALENDAR\r\n")

    assert source.poll() == [] and not PoisonMessage.objects.exists()


def test_the_address_of_an_account_is_an_error_that_lists_its_calendars(server: CalDavServer) -> None:
    for path in ("/ada/", "/"):
        source = Polled("caldav", secret="app-password", url=server.url(path), user="ada")
        with pytest.raises(SourceError, match="Work & more at http://127.0.0.1:.*/ada/office/") as error:
            source.poll()
        assert "one of them" in error.value.remedy and error.value.retry_after == timedelta(minutes=5)
        source.source.delete()


def test_calendars_at_another_server_are_named_and_not_asked_for(server: CalDavServer) -> None:
    with serving_lists() as other:
        server.home = other.url("/home/")
        with pytest.raises(SourceError, match=f"another server: {other.url('/home/')}"):
            Polled("caldav", secret="app-password", url=server.url("/"), user="ada").poll()
        assert other.asked == []


def test_a_home_that_is_no_address_is_passed_over(server: CalDavServer) -> None:
    server.home = "http://[x:99999999/"
    with pytest.raises(SourceError, match="The address is of no calendar"):
        Polled("caldav", secret="app-password", url=server.url("/"), user="ada").poll()


def test_a_wrong_password_is_an_error_with_a_remedy(server: CalDavServer) -> None:
    with pytest.raises(SourceError, match="401 Unauthorized") as error:
        Polled("caldav", secret="wrong", url=server.url(), user="ada").poll()
    assert "app password" in error.value.remedy


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ((207, b'<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>', {}), "a document type"),
        ((207, b"<a>" * 60 + b"</a>" * 60, {}), "too many elements"),
        ((207, b"<html/>", {}), "no multistatus"),
        ((207, b"<d:multistatus", {}), "cannot be read"),
        ((207, b"", {}), "cannot be read"),
        ((207, b'<d:multistatus xmlns:d="DAV:"/>', {}), "names no resource"),
        ((405, b"", {}), "takes no CalDAV"),
        ((404, b"", {}), "404 Not Found"),
        ((503, b"", {"Retry-After": "7"}), "503"),
        ((301, b"", {"Location": "http://192.168.1.1/"}), "public"),
    ],
)
def test_an_answer_that_is_of_no_use_is_an_error(
    server: CalDavServer, answer: tuple[int, bytes, dict[str, str]], text: str
) -> None:
    server.answer = answer
    with pytest.raises(SourceError, match=text):
        polled(server).poll()


def test_changes_that_are_cut_where_the_token_stays_the_same_are_read_as_a_whole(
    server: CalDavServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_token", lambda _: "http://example.com/sync/0")
    source = polled(server, events="changes")
    source.poll()
    server.page = 1
    for name in "abc":
        make(server, name, soon(days=2))

    assert sorted(said(source.poll())) == [("created", name) for name in "abc"]


@pytest.mark.parametrize(
    ("answered", "types"),
    [
        ("<d:status>HTTP/1.1 503 Service Unavailable</d:status>", []),
        ("<d:propstat><d:prop><d:getetag/></d:prop><d:status>HTTP/1.1 403 Forbidden</d:status></d:propstat>", []),
        (
            "<d:propstat><d:prop><d:getetag/></d:prop><d:status>HTTP/1.1 404 Not Found</d:status></d:propstat>",
            ["cancelled"],
        ),
        ("<d:status>HTTP/1.1 404 Not Found</d:status>", ["cancelled"]),
    ],
)
def test_a_changed_event_that_the_server_does_not_give_is_cancelled_only_if_it_is_not_there(
    server: CalDavServer, answered: str, types: list[str]
) -> None:
    make(server, "a", soon(days=2))
    source = polled(server, events="changes")
    source.poll()
    make(server, "a", soon(days=3))
    event_of = server._event
    server._event = lambda name, has_data: (  # type: ignore[method-assign]
        f"<d:response><d:href>/ada/office/{name}</d:href>{answered}</d:response>" if has_data else event_of(name, False)
    )

    assert [type for type, _ in said(source.poll())] == types
    assert PoisonMessage.objects.exists() == (not types)


def test_a_change_of_what_is_no_address_is_an_error_of_the_source(
    server: CalDavServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = polled(server)
    source.poll()
    make(server, "a", soon(days=2))
    answer = "<d:response><d:href>http://[x/</d:href><d:status>HTTP/1.1 404 Not Found</d:status></d:response>"
    monkeypatch.setattr(server, "_event", lambda *_: answer)

    with pytest.raises(SourceError, match="an address in the answer is none"):
        source.poll()


@pytest.mark.parametrize("name", ["sync-token", "getctag"])
def test_a_token_or_tag_of_any_length_is_not_stored(server: CalDavServer, name: str) -> None:
    server.has_sync, about = name == "sync-token", server._about
    server._about = lambda path: about(path).replace(f"{name}>", f"{name}>{'x' * 100_000}", 1)  # type: ignore[method-assign]
    source = polled(server, events="changes")
    source.poll()
    assert len(json.dumps(Reading.objects.get().position)) < 2_000

    server.asked.clear()
    assert source.poll() == [] and "calendar-query" not in server.requests
    make(server, "a", soon(days=2))
    assert said(source.poll()) == [("created", "a")]


def test_an_answer_with_many_elements_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multistatus, "MOST_ELEMENTS", 10)
    assert multistatus.tree(b"<a>" + b"<b/>" * 9 + b"</a>")
    with pytest.raises(multistatus.Unreadable, match="too many elements"):
        multistatus.tree(b"<a>" + b"<b/>" * 10 + b"</a>")


def test_changes_that_are_too_large_together_are_an_error(
    server: CalDavServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = polled(server)
    source.poll()
    for number in range(20):
        make(server, f"e{number}", soon(days=2))
    monkeypatch.setattr(caldav_server, "MOST_BYTES", 3_000)
    monkeypatch.setattr(caldav_server, "PIECE", 1)
    with pytest.raises(SourceError, match="larger than"):
        source.poll()


def test_a_calendar_is_parsed_in_a_process_of_its_own(server: CalDavServer) -> None:
    make(server, "a", soon(hours=2))
    make(server, "b", soon(hours=3), title="Ünïcode")
    source = polled(server)
    source.poll()

    assert [title for title, _ in source.waiting] == ["a", "Ünïcode"]


def test_a_calendar_by_a_connection_gets_its_token_which_is_renewed_once(
    server: CalDavServer, provider: OAuthServer
) -> None:
    hosts = [urlsplit(server.url()).netloc]
    connected(provider, "work", left=1800, settings={**provider.settings, "hosts": hosts})
    make(server, "a", soon(hours=2))
    authorized: list[str] = []

    class Bearer:
        """Every token but the first one is accepted."""

        def __eq__(self, other: object) -> bool:
            authorized.append(str(other))
            return str(other).startswith("Bearer ") and str(other) != authorized[0]

        __hash__ = None  # type: ignore[assignment]

    server.authorization = Bearer()  # type: ignore[assignment]
    source = Polled("caldav", url=server.url(), connection="work")
    source.poll()

    assert [title for title, _ in source.waiting] == ["a"]
    assert len(set(authorized)) == 2


def test_a_connection_of_another_provider_gets_no_token_to_the_server(
    server: CalDavServer, provider: OAuthServer
) -> None:
    connected(provider, "work")
    with pytest.raises(SourceError, match="sends its token to"):
        Polled("caldav", url=server.url(), connection="work").poll()
    assert server.asked == []


@pytest.mark.parametrize(
    "settings",
    [
        {"url": "ftp://example.org/"},
        {"url": "https://ada:app-password@example.org/"},  # which the page, the audit log and an export would show
        {"url": "https://example.org/", "user": "a:b"},
        {"url": "https://example.org/", "user": "a", "connection": "work"},
        {"url": "https://example.org/", "zone": "Nowhere"},
    ],
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, str]) -> None:
    with pytest.raises(InvalidSettings):
        kinds()["caldav"].clean_settings(settings)
