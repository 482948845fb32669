"""The pages of incidents."""

import re
from datetime import UTC, datetime

import pytest
from django.test import Client

from runs.models import Incident, Run
from tests.config.console.test_actions import press
from tests.support.console import list_of, make_failed_run, make_incident, page_of
from tests.support.incidents import fail, notification_texts
from tests.support.triggers import make_trigger

pytestmark = pytest.mark.django_db


def test_the_page_shows_the_failures_the_error_and_the_notifications(admin: Client) -> None:
    make_trigger()
    fail(3, "KeyError: 'x7'")

    shown = admin.get(page_of("runs_incident", Incident.objects.get())).content.decode()

    assert "Trigger greeter: 3 failed runs since the last success." in shown
    assert "KeyError: &#x27;x7&#x27;" in shown
    assert notification_texts()[0].split(".")[0] in shown


def test_the_list_and_the_overview_show_what_is_open(admin: Client) -> None:
    make_incident("open")
    make_incident("over", last_at="2025-12-31T00:00Z", closed_at="2026-01-01T00:00Z")
    fail(1, name="noticed")

    def shows(url: str) -> set[str]:
        page = admin.get(url).content.decode()
        return {name for name in ("open", "over", "noticed") if f"Trigger {name}" in page}

    assert shows(list_of("runs_incident")) == {"open", "over"}
    assert shows(f"{list_of('runs_incident')}?status=open") == {"open"}
    assert shows(f"{list_of('runs_incident')}?status=noticed") == {"noticed"}
    assert shows("/admin/") == {"open"}


def test_the_form_that_is_sent_twice_requeues_once(admin: Client) -> None:
    run = make_failed_run(make_trigger())
    incident = make_incident("greeter", run)
    upto = incident.covered.get().pk

    texts = [str(one) for one in press(admin, "runs_incident", incident, "requeue_runs", upto=upto).context["messages"]]
    again = [str(one) for one in press(admin, "runs_incident", incident, "requeue_runs", upto=upto).context["messages"]]

    assert (texts, again) == (["1 requeued."], ["0 requeued."])
    assert Run.objects.get().epoch == 1


def test_a_person_acknowledges_mutes_until_a_time_and_ends_the_mute(admin: Client) -> None:
    incident = make_incident("greeter")

    def state() -> str:
        row = admin.get(f"{list_of('runs_incident')}?status=open").content.decode()
        return next(word for word in ("muted", "acknowledged", "open") if f">{word}<" in re.sub(r"\s+", "", row))

    press(admin, "runs_incident", incident, "acknowledge_this", note="the disk")
    assert state() == "acknowledged"
    press(admin, "runs_incident", incident, "mute_this", until="at", at="2999-01-01T00:00", note="waits for 2.1")
    incident.refresh_from_db()

    page = admin.get(page_of("runs_incident", incident)).content.decode()

    assert incident.muted_until == datetime(2999, 1, 1, tzinfo=UTC)
    assert "the disk" in page and "waits for 2.1" in page and "by admin:ada" in page
    assert state() == "muted"
    press(admin, "runs_incident", incident, "unmute_this")
    assert state() == "acknowledged"


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"until": "at"}, "Enter a time"),
        ({"until": "at", "at": "2020-01-01T00:00"}, "is in the future"),
        ({"until": "version"}, "No worker has run yet"),
        ({"until": "soon"}, "Select a valid choice"),
    ],
)
def test_a_dialog_with_an_invalid_end_stays_open(admin: Client, given: dict[str, str], fault: str) -> None:
    incident = make_incident("greeter")

    assert fault in press(admin, "runs_incident", incident, "mute_this", **given).content.decode()
    incident.refresh_from_db()
    assert not incident.is_muted
