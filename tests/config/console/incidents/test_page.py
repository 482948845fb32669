"""The pages of incidents."""

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
