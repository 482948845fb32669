"""Incidents over HTTP."""

import pytest

from runs.models import Incident, Run
from tests.support.api import Api
from tests.support.console import make_failed_run, make_incident
from tests.support.incidents import fail
from tests.support.triggers import make_trigger

pytestmark = pytest.mark.django_db


def test_a_list_shows_what_is_or_was_open_and_filters() -> None:
    fail(1, name="noticed")
    fail(2, name="open")
    make_incident("closed", closed_at="2026-01-01T00:00Z")

    def found(**query: str) -> set[str]:
        return {
            one["name"]
            for one in Api(["runs.view_incident"], name="-".join(query.values()) or "all")
            .get("incidents/", **query)
            .body["results"]
        }

    assert found() == {"open", "closed"}
    assert found(status="noticed") == {"noticed"}
    assert found(status="open", kind="trigger", subject="open") == {"open"}
    assert Api(["runs.view_incident"], name="x").get("incidents/", status="lost").status == 400


def test_one_incident_names_its_failed_runs_and_requeues_them() -> None:
    run = make_failed_run(make_trigger())
    incident = make_incident("greeter", run)
    api = Api(["runs.view_incident", "runs.requeue_run"])

    seen = api.get(f"incidents/{incident.pk}/").body
    assert (seen["status"], seen["covered"], seen["failed"]) == ("open", 1, [str(run.pk)])

    selection = {"upto": seen["last_covered"]}
    assert api.post(f"incidents/{incident.pk}/requeue/", selection).body == {"runs": 1, "refused": 0, "left": False}
    assert api.post(f"incidents/{incident.pk}/requeue/", selection).body == {"runs": 0, "refused": 0, "left": False}
    assert Run.objects.get().status == "queued"


@pytest.mark.parametrize("upto", [-1, 2**63])
def test_no_failure_has_such_a_number(upto: int) -> None:
    incident = make_incident("greeter")

    assert Api(["runs.requeue_run"]).post(f"incidents/{incident.pk}/requeue/", {"upto": upto}).status == 400


def test_each_action_needs_its_permission() -> None:
    incident = make_incident("greeter")
    viewer = Api(["runs.view_incident"])

    assert viewer.post(f"incidents/{incident.pk}/requeue/").status == 403
    assert viewer.post(f"incidents/{incident.pk}/close/").status == 403
    closer = Api(["runs.close_incident"], name="closer")
    assert closer.post(f"incidents/{incident.pk}/close/").body["closed_by"] == "token:closer"
    assert closer.post(f"incidents/{incident.pk}/close/").status == 409
    assert Incident.objects.get().status == "closed"


def test_one_is_acknowledged_muted_and_no_longer_muted() -> None:
    incident = make_incident("greeter")
    make_incident("other")
    api = Api(["runs.view_incident", "runs.acknowledge_incident", "runs.mute_incident"], name="ada")

    acknowledged = api.post(f"incidents/{incident.pk}/acknowledge/", {"note": "the disk"})
    muted = api.post(f"incidents/{incident.pk}/mute/", {"until": "8h"})

    assert (acknowledged.body["acknowledged_by"], acknowledged.body["acknowledged_note"]) == ("token:ada", "the disk")
    assert api.post(f"incidents/{incident.pk}/acknowledge/").status == 409
    assert (muted.body["muted_by"], muted.body["muted_versions"]) == ("token:ada", [])
    assert muted.body["muted_until"] > muted.body["muted_at"]
    for asked, names in (("true", {"greeter"}), ("false", {"other"})):
        assert {one["name"] for one in api.get("incidents/", muted=asked).body["results"]} == names
    assert api.post(f"incidents/{incident.pk}/unmute/").body["muted_at"] is None
    assert api.post(f"incidents/{incident.pk}/unmute/").status == 409


@pytest.mark.parametrize("until", ["", "soon", "2020-01-01T00:00Z"])
def test_a_mute_with_an_invalid_end_is_refused(until: str) -> None:
    incident = make_incident("greeter")

    assert Api(["runs.mute_incident"]).post(f"incidents/{incident.pk}/mute/", {"until": until}).status == 400


@pytest.mark.parametrize("action", ["acknowledge", "mute", "unmute"])
def test_a_viewer_neither_acknowledges_nor_mutes(action: str) -> None:
    incident = make_incident("greeter")

    viewer = Api(["runs.view_incident", "runs.close_incident"])

    assert viewer.post(f"incidents/{incident.pk}/{action}/", {"until": "8h"}).status == 403
