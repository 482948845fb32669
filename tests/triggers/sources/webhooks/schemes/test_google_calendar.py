import pytest

from tests.support.deliveries import take
from triggers.accept import Incoming
from triggers.sources.settings import InvalidSettings
from triggers.sources.webhooks.proof import Rejected
from triggers.sources.webhooks.scheme import schemes

TOKEN = "channel-token"
# As in Google's guide to push notifications.
CHANGED = {
    "Content-Type": "application/json; utf-8",
    "Content-Length": "0",
    "X-Goog-Channel-ID": "4ba78bf0-6a47-11e2-bcfd-0800200c9a66",
    "X-Goog-Channel-Token": TOKEN,
    "X-Goog-Channel-Expiration": "Fri, 27 Nov 2026 01:13:52 GMT",
    "X-Goog-Resource-ID": "ret08u3rv24htgh289g",
    "X-Goog-Resource-URI": "https://www.googleapis.com/calendar/v3/calendars/my_calendar%40gmail.com/events",
    "X-Goog-Resource-State": "exists",
    "X-Goog-Message-Number": "10",
}


def event_with(**changes: str) -> Incoming:
    headers = CHANGED | {f"X-Goog-{name.replace('_', '-')}": value for name, value in changes.items()}
    return take("google_calendar", b"", headers, TOKEN).event


def test_a_notification_is_an_event_whose_data_are_the_headers() -> None:
    event = event_with()

    assert (event.type, event.subject) == ("calendar.exists", "my_calendar@gmail.com")
    assert event.ce_id == "4ba78bf0-6a47-11e2-bcfd-0800200c9a66:10"
    assert event.data == {
        "channel": "4ba78bf0-6a47-11e2-bcfd-0800200c9a66",
        "number": "10",
        "state": "exists",
        "resource": "ret08u3rv24htgh289g",
        "uri": "https://www.googleapis.com/calendar/v3/calendars/my_calendar%40gmail.com/events",
        "expires": "2026-11-27T01:13:52+00:00",
    }
    assert event.headers["x-goog-channel-token"] == "[redacted]"


def test_a_retry_is_the_same_event_and_the_next_message_another() -> None:
    assert event_with().ce_id == event_with(Resource_State="exists").ce_id
    assert len({event_with().ce_id, event_with(Message_Number="12").ce_id, event_with(Channel_ID="another").ce_id}) == 3


def test_the_first_message_of_a_channel_shows_when_it_ends() -> None:
    event = event_with(Resource_State="sync", Message_Number="1")

    assert (event.type, event.data["expires"]) == ("calendar.sync", "2026-11-27T01:13:52+00:00")


@pytest.mark.parametrize("expiration", ["", "soon", "Fri, 99 Nov 2026 01:13:52 GMT", "ÿ"])
def test_a_channel_with_an_unreadable_expiration_has_none(expiration: str) -> None:
    assert event_with(Channel_Expiration=expiration).data["expires"] is None


@pytest.mark.parametrize(
    "uri", ["", "https://www.googleapis.com/calendar/v3/users/me/calendarList", "%ff/calendars/%00/x"]
)
def test_a_channel_may_watch_something_else_than_a_calendar(uri: str) -> None:
    assert event_with(Resource_URI=uri).subject == ""


@pytest.mark.parametrize(
    "changes",
    [{"Channel_Token": ""}, {"Channel_Token": "other"}, {"Channel_Token": f"{TOKEN}, {TOKEN}"}, {"Channel_Token": "ÿ"},
     {"Channel_ID": ""}, {"Message_Number": ""}, {"Message_Number": "-1"}, {"Message_Number": "1, 1"},
     {"Resource_State": ""}, {"Resource_State": "Exists"}, {"Resource_State": "exists, exists"}],
)  # fmt: skip
def test_a_wrong_token_or_a_message_without_its_number_is_refused(changes: dict[str, str]) -> None:
    with pytest.raises(Rejected):
        event_with(**changes)


def test_a_token_that_google_does_not_take_is_refused() -> None:
    scheme = schemes()["google_calendar"]

    assert scheme.clean_secret("a" * 256)
    with pytest.raises(InvalidSettings, match="256"):
        scheme.clean_secret("a" * 257)
