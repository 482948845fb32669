"""Erasure of an organizer: the recorded entries and the starts that wait, without an event of what has not changed."""

from datetime import timedelta
from io import StringIO

import pytest
from django.core.management import call_command
from django.db.models.functions import Now

from runs.models import AuditEntry, OutboxMessage
from tests.support.list_server import ListServer, Page
from tests.triggers.sources.calendars.conftest import Polled, data, said, soon
from tests.triggers.sources.calendars.test_ics import calendar, event, polled
from tests.triggers.sources.calendars.test_ics import parsed_here as parsed_here
from triggers.models import CalendarEntry, Event
from triggers.retention.erasure import Selection, erase

pytestmark = pytest.mark.django_db

ADA, BOB = "ada@example.com", "bob@example.com"
OF_ADA = (f"ORGANIZER;CN=Ada:mailto:{ADA}", f"ATTENDEE:mailto:{BOB}", "LOCATION:At Ada's")


def of_ada_and_bob(site: ListServer, **settings: str) -> Polled:
    at = soon(days=2)
    source = polled(
        site,
        event("a", at, *OF_ADA, title="Ada's review"),
        event("b", at, f"ORGANIZER:mailto:{BOB}"),
        **settings,
    )
    source.poll()
    return source


def stored() -> str:
    rows = [*CalendarEntry.objects.values_list("data", flat=True), *OutboxMessage.objects.values_list("payload")]
    return str(rows)


def test_an_erased_organizer_is_in_no_entry_and_no_start_and_the_others_stay(site: ListServer) -> None:
    source = of_ada_and_bob(site)

    erasure = erase(Selection(subject=ADA), by="test")

    assert erasure.meetings == 2 and "Ada" not in stored() and ADA not in stored()
    assert [title for title, _ in source.waiting] == ["b"]
    assert source.poll() == [] and [title for title, _ in source.waiting] == ["b"]
    assert AuditEntry.objects.get(action="erase").detail["meetings"] == 2


def test_a_start_that_was_erased_waits_again_after_an_edit_of_the_source(site: ListServer) -> None:
    source = of_ada_and_bob(site)
    erase(Selection(subject=ADA), by="test")
    source.settings["before"] = "30m"
    source.poll()

    assert sorted(title for title, _ in source.waiting) == ["Ada's review", "b"]


def test_an_erased_meeting_that_is_changed_names_the_fields_that_are_known_to_differ(site: ListServer) -> None:
    source = of_ada_and_bob(site, events="changes")
    erase(Selection(subject=ADA), by="test")
    at = soon(days=3)
    site.pages["/a.ics"] = Page(calendar(event("a", at, *OF_ADA, title="Renamed"), event("b", soon(days=2))))

    [changed] = [one for one in source.poll() if data(one)["id"] == "a"]

    assert data(changed)["changed"] == ["ends_at", "starts_at"] and data(changed)["title"] == "Renamed"


def test_an_erased_meeting_that_is_deleted_is_cancelled_without_the_words_of_the_person(site: ListServer) -> None:
    source = of_ada_and_bob(site, events="changes")
    erase(Selection(subject=ADA), by="test")
    site.pages["/a.ics"] = Page(calendar())

    cancelled = source.poll()

    assert sorted(said(cancelled)) == [("cancelled", ""), ("cancelled", "b")]
    assert not Event.objects.filter(subject=ADA).exists()


def test_a_dry_run_counts_and_changes_nothing_and_an_expression_leaves_calendars(site: ListServer) -> None:
    source = of_ada_and_bob(site)
    before = stored()
    out = StringIO()

    call_command("erase", "--subject", ADA, "--dry-run", stdout=out)
    erase(Selection(subject=ADA, where="true"), by="test")
    erase(Selection(subject=ADA, source="another"), by="test")

    assert "0 events and 0 runs, 2 entries and waiting starts of calendars would be erased" in out.getvalue()
    assert stored() == before
    assert erase(Selection(subject=ADA, source=source.source.slug), by="test").meetings == 2


def test_a_start_that_was_recorded_is_erased_with_the_events(site: ListServer) -> None:
    source = of_ada_and_bob(site)
    [started] = [one for one in source.later(timedelta(days=2)) if one.subject == ADA]
    Event.objects.update(dispatched_at=Now())

    erase(Selection(subject=ADA), by="test")

    assert Event.objects.get(pk=started.pk).data is None
