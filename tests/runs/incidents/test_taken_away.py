"""Retention and erasure of incidents."""

from datetime import timedelta

import pytest

from config.retention import prune
from runs.models import CoveredRun, Incident, Notification
from runs.retention.erasure import ERASED, erase_runs
from tests.support.console import make_incident
from tests.support.incidents import fail, notification_texts, pass_by
from tests.support.old_rows import old_event, old_run
from tests.support.runs import make_run

pytestmark = pytest.mark.django_db


def test_an_old_incident_goes_with_what_it_covers() -> None:
    make_incident("old", make_run(status="failed"))
    pass_by(timedelta(days=91))
    make_incident("young", make_run(status="failed"))

    prune()

    assert [one.subject for one in Incident.objects.all()] == ["young"]
    assert CoveredRun.objects.count() == 1


def test_an_incidents_error_is_removed_with_the_payloads_and_the_class_of_the_exception_stays() -> None:
    make_incident("old", make_run(status="failed"))
    pass_by(timedelta(days=31))

    prune()

    incident = Incident.objects.get()
    assert (incident.error, incident.cause) == ("", "RuntimeError")
    assert incident.fingerprint == f"removed:{incident.pk}"


def test_a_deleted_run_is_no_longer_covered() -> None:
    run = old_run(old_event(100), days=100, status="failed")
    incident = make_incident("greeter", run)

    prune()

    assert Incident.objects.get() == incident
    assert not CoveredRun.objects.exists()


def test_erasing_a_run_erases_the_texts_of_its_incident_and_notifications() -> None:
    run = make_run(status="failed", error="Unknown: Ada Lovelace")
    other = make_run(status="failed", error="Unknown: Ada Lovelace")
    fail(2, "Unknown: Ada Lovelace")
    fail(2, "KeyError: 'x'", name="other")
    incident = Incident.objects.get(subject="greeter")
    CoveredRun.objects.create(incident=incident, run_id=run.pk)
    CoveredRun.objects.create(incident=incident, run_id=other.pk)
    Notification.objects.update(created_at=Notification.objects.latest("id").created_at + timedelta(seconds=1))

    erase_runs([run.pk])

    incident.refresh_from_db()
    assert (incident.error, incident.cause) == (ERASED, "Unknown")
    assert ERASED in notification_texts()
    assert "Ada" not in " ".join(notification_texts())
    assert Incident.objects.get(subject="other").error == "KeyError: 'x'"
    fail(2, "Unknown: Ada Lovelace")  # the failures go on
    assert Incident.objects.filter(subject="greeter", closed_at=None).count() == 2
