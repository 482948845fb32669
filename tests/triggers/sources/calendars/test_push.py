"""Push channels of Google Calendar: what they bring is a hint to poll now, and polling stands behind them."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from tests.support.list_server import ListServer, Page
from tests.support.oauth_server import OAuthServer
from tests.triggers.sources.calendars.conftest import Polled, said, soon
from tests.triggers.sources.calendars.test_google import Calendar, event
from tests.triggers.sources.calendars.test_google import calendar as calendar
from triggers.models import PushChannel, Reading
from triggers.sources.calendars import push
from triggers.sources.edit import change_source
from triggers.sources.kind import kinds

pytestmark = pytest.mark.django_db

WATCH, STOP = "/calendar/v3/calendars/primary/events/watch", "/calendar/v3/channels/stop"
HOME = "https://wakeful.example.com"
PATH = "/push/calendars/"


@pytest.fixture(autouse=True)
def public(settings: Any) -> None:
    settings.WAKEFUL_URL = HOME


def admit(calendar: Calendar, lasts: timedelta = timedelta(days=1)) -> None:
    """Google makes channels, and ends them."""
    ends = int((datetime.now(UTC) + lasts).timestamp() * 1000)
    channel = {"kind": "api#channel", "resourceId": "r1", "expiration": str(ends)}
    calendar[f"POST {WATCH}"] = Page(json.dumps(channel).encode())
    calendar[f"POST {STOP}"] = Page(status=204)


def posted(site: ListServer) -> list[tuple[str, dict[str, Any]]]:
    return [(path.rpartition("/")[2], json.loads(body)) for path, body in site.posted]


def send(asked: dict[str, Any], state: str = "exists", **changed: str) -> int:
    headers = {"X-Goog-Channel-ID": asked["id"], "X-Goog-Channel-Token": asked["token"], "X-Goog-Resource-State": state}
    return Client(enforce_csrf_checks=True).post(PATH, headers={**headers, **changed}).status_code


def hinted() -> datetime | None:
    return PushChannel.objects.get().hinted_at


def rewind(**columns: Any) -> None:
    """As if the channel of the next poll were another one."""
    reading = Reading.objects.get()
    assert reading.position
    reading.position["state"]["push"].update(columns)
    reading.save()


def watched(site: ListServer, calendar: Calendar) -> tuple[Polled, dict[str, Any]]:
    admit(calendar)
    source = Polled("calendar_of_google", connection="work")
    source.poll()
    [(_, asked)] = posted(site)
    return source, asked


def test_a_channel_is_made_with_the_address_and_a_token_whose_digest_is_kept(
    site: ListServer, calendar: Calendar
) -> None:
    source, asked = watched(site, calendar)
    source.poll()

    assert len(site.posted) == 1
    assert (asked["type"], asked["address"], asked["params"]) == ("web_hook", HOME + PATH, {"ttl": "86400"})
    channel = PushChannel.objects.get()
    assert (str(channel.id), channel.source_id) == (asked["id"], source.source.pk)
    assert asked["token"] not in str(PushChannel.objects.values()) + str(Reading.objects.values())
    assert send(asked, "sync") == 200 and hinted() is None


def test_a_change_at_google_is_a_hint(site: ListServer, calendar: Calendar) -> None:
    _, asked = watched(site, calendar)

    assert send(asked) == 200
    first = hinted()
    assert first is not None
    # Also at once: the poll that followed the first one may have begun before this change.
    assert send(asked) == 200
    later = hinted()
    assert later is not None and later > first


@pytest.mark.parametrize(
    "changed",
    [
        {"X-Goog-Channel-Token": "forged"},
        {"X-Goog-Channel-Token": ""},
        {"X-Goog-Channel-Token": "x" * 10_000},
        {"X-Goog-Channel-ID": "00000000-0000-4000-8000-000000000000"},
        {"X-Goog-Channel-ID": "no id"},
        {"X-Goog-Channel-ID": ""},
    ],
)
def test_what_is_of_no_channel_is_404_and_no_hint(
    site: ListServer, calendar: Calendar, changed: dict[str, str]
) -> None:
    _, asked = watched(site, calendar)

    assert send(asked, **changed) == 404
    assert hinted() is None
    assert Client().get(PATH).status_code == 405


def test_a_channel_that_has_ended_is_404(site: ListServer, calendar: Calendar) -> None:
    """Also where no other one has taken its place, such as after WAKEFUL_URL was removed: its token is of no more use."""
    _, asked = watched(site, calendar)
    PushChannel.objects.update(ends_at=datetime.now(UTC) - timedelta(seconds=1))

    assert send(asked) == 404 and hinted() is None


def test_the_channel_of_a_disabled_or_deleted_source_is_404(site: ListServer, calendar: Calendar) -> None:
    source, asked = watched(site, calendar)
    source.source.enabled = False
    source.source.save()
    assert send(asked) == 404 and hinted() is None

    source.source.delete()
    assert send(asked) == 404


def test_a_forged_message_costs_one_statement(site: ListServer, calendar: Calendar) -> None:
    _, asked = watched(site, calendar)

    for id, count in ((asked["id"], 1), ("no id", 0)):
        with CaptureQueriesContext(connection) as captured:
            assert not push.hint(id, "forged", "exists")
        assert len(captured) == count


@pytest.mark.parametrize("until", [timedelta(), timedelta(days=30)], ids=["is over", "of a clock that was wrong"])
def test_a_channel_that_is_about_to_end_is_replaced_and_the_old_one_is_stopped(
    until: timedelta, site: ListServer, calendar: Calendar
) -> None:
    source, first = watched(site, calendar)
    rewind(until=(datetime.now(UTC) + until).isoformat())
    source.poll()

    [_, (made, second), (stopped, old)] = posted(site)
    assert (made, stopped, old) == ("watch", "stop", {"id": first["id"], "resourceId": "r1"})
    assert send(second) == 200 and send(first) == 404
    assert PushChannel.objects.count() == 1


def test_an_edited_source_has_another_channel_and_one_that_is_over_stops_it(
    site: ListServer, calendar: Calendar
) -> None:
    source, first = watched(site, calendar)
    change_source(source.source, {"settings": {"connection": "work", "every": "1h"}}, by="test")
    assert send(first) == 200  # until the edit is committed
    kinds()["calendar_of_google"].saved(source.source.pk)
    assert send(first) == 404
    source.poll()
    [(_, _), (_, second), (_, stopped)] = posted(site)
    assert send(second) == 200 and stopped["id"] == first["id"]

    source.reader().leave()
    assert posted(site)[-1] == ("stop", {"id": second["id"], "resourceId": "r1"})


def test_another_address_of_the_installation_is_another_channel(
    site: ListServer, calendar: Calendar, settings: Any
) -> None:
    source, _ = watched(site, calendar)
    settings.WAKEFUL_URL = "https://new.example.com/"
    source.poll()

    assert posted(site)[1][1]["address"] == f"https://new.example.com{PATH}"


@pytest.mark.parametrize(
    "url",
    ["http://wakeful.example.com", "https://localhost", "https://127.0.0.1", "https://10.0.0.1", "https://wakeful", ""],
)
def test_an_installation_without_a_public_address_with_tls_asks_for_no_channel(
    site: ListServer, calendar: Calendar, settings: Any, url: str
) -> None:
    settings.WAKEFUL_URL = url
    admit(calendar)
    Polled("calendar_of_google", connection="work").poll()

    assert site.posted == [] and not PushChannel.objects.exists()


@pytest.mark.parametrize(
    "page",
    [
        Page(status=401),
        Page(b"[]"),
        Page(b'{"expiration": "soon"}'),
        Page(b'{"expiration": null, "resourceId": "r1"}'),
        Page(b"{}"),
    ],
)
def test_polling_goes_on_where_google_makes_no_channel_and_the_channel_is_requested_again_after_an_hour(
    site: ListServer, calendar: Calendar, page: Page
) -> None:
    calendar[f"POST {WATCH}"] = page
    source = Polled("calendar_of_google", connection="work", events="changes")
    source.poll()
    calendar.changes = [event("a", soon(days=2), created=datetime.now(UTC).isoformat())]
    asked = len(site.posted)

    assert said(source.poll()) == [("created", "a")]
    assert asked >= 1 and len(site.posted) == asked and not PushChannel.objects.exists()
    admit(calendar)
    rewind(until=datetime.now(UTC).isoformat())
    source.poll()
    assert PushChannel.objects.exists()


def test_an_id_that_postgresql_cannot_store_holds_up_no_poll(site: ListServer, calendar: Calendar) -> None:
    ends = int((datetime.now(UTC) + timedelta(days=1)).timestamp() * 1000)
    calendar[f"POST {WATCH}"] = Page(json.dumps({"resourceId": "r\0\ud800", "expiration": ends}).encode())
    source = Polled("calendar_of_google", connection="work")
    source.poll()
    source.poll()

    assert len(site.posted) == 1 and PushChannel.objects.exists()


def test_the_token_of_the_connection_goes_with_the_request(
    site: ListServer, calendar: Calendar, provider: OAuthServer
) -> None:
    watched(site, calendar)

    assert urlsplit(site.url()).hostname == "127.0.0.1" and not provider.asked
