"""The search above the list of events."""

from datetime import UTC, timedelta
from typing import Any

import pytest
from django.test import Client

from config.console.events.page import EventPanel
from tests.support.console import list_of
from tests.support.triggers import make_event

LIST = "triggers_event"


def found_by(admin: Client, query: str) -> tuple[list[Any], str]:
    page = admin.get(list_of(LIST) + query)
    assert page.status_code == 200
    return [event.pk for event in page.context["cl"].result_list], page.content.decode()


@pytest.mark.parametrize(
    "query", ["type=order.*", "subject=c-1", "field=customer.id%3D42", "start=1h&field=customer.id%3D42"]
)
def test_events_are_found_by_the_fields_of_the_search(admin: Client, query: str) -> None:
    wanted = make_event(type="order.placed", subject="c-1", data={"customer": {"id": 42}})
    make_event(data={"customer": {"id": 43}})

    assert found_by(admin, f"?{query}")[0] == [wanted.pk]


@pytest.mark.parametrize(("query", "message"), [("field=x", "use path=value"), ("start=yesterday", "a duration ago")])
def test_a_wrong_condition_is_shown_beside_its_field_and_finds_nothing(admin: Client, query: str, message: str) -> None:
    make_event()

    found, content = found_by(admin, f"?{query}")

    assert (found, message in content) == ([], True)


def test_a_time_of_the_search_is_read_by_the_clock_that_the_page_shows(admin: Client) -> None:
    event = make_event()
    local = {"Etc/GMT-14": 14, "Etc/GMT+12": -12}  # hours ahead of UTC

    for zone, hours in local.items():
        admin.cookies["zone"] = zone
        clock = event.received_at.astimezone(UTC) + timedelta(hours=hours)
        before, after = (f"{clock + timedelta(minutes=minutes):%Y-%m-%dT%H:%M}" for minutes in (-5, 5))
        found, content = found_by(admin, f"?start={before}&end={after}")
        assert found == [event.pk] and f"A time in {zone}, or a duration ago" in content
        assert found_by(admin, f"?start={after}")[0] == []
    assert "beyond the calendar" in found_by(admin, "?start=9999-12-31T23:59")[1]


def test_pages_lead_to_older_events_and_back_to_the_newest(admin: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EventPanel, "list_per_page", 2)
    events = [make_event(type="order.placed").pk for _ in range(3)]

    page = admin.get(list_of(LIST) + "?type=order.*").context["cl"]
    older = admin.get(list_of(LIST) + page.older_query).context["cl"]

    assert [event.pk for event in page.result_list] == [events[2], events[1]]
    assert [event.pk for event in older.result_list] == [events[0]]
    assert (older.older_query, older.newest_query) == ("", "?type=order.%2A")


def test_the_search_keeps_the_other_filters(admin: Client) -> None:
    event = make_event(type="order.placed")

    content = found_by(admin, f"?state=undispatched&type=order.*&source__id__exact={event.source_id}")[1]

    assert '<input type="hidden" name="state" value="undispatched">' in content
    assert f'<input type="hidden" name="source__id__exact" value="{event.source_id}">' in content
    assert admin.get(list_of(LIST) + "?before=x").status_code == 302
