"""GET /api/v1/upcoming/: what will wake next, for those who may know."""

from datetime import UTC, timedelta

import pytest
from django.utils import timezone

from tests.support.api import Api
from tests.support.triggers import make_heartbeat, make_trigger
from tests.triggers.upcoming.test_listing import make_calendar, put_meeting, put_wake
from triggers.models import Schedule
from triggers.schedules.firing import due_schedules

pytestmark = pytest.mark.django_db


@pytest.fixture
def heartbeat() -> Schedule:
    schedule = make_heartbeat("watch")
    due_schedules.settle()
    put_wake(make_trigger("digest"), timezone.now() + timedelta(minutes=10), "look again")
    return Schedule.objects.get(pk=schedule.pk)


def test_upcoming_lists_the_next_day_soonest_first(heartbeat: Schedule) -> None:
    answer = Api().get("upcoming/")

    wake, beat = answer.body["results"]
    assert (answer.status, answer.body["next"]) == (200, None)
    assert (wake["kind"], wake["trigger"], wake["why"], wake["schedule"]) == ("wake", "digest", "look again", None)
    assert (beat["kind"], beat["name"], beat["agent"], beat["schedule"]) == (
        "heartbeat",
        "watch",
        "watch",
        heartbeat.pk,
    )
    assert (beat["times"], beat["is_endless"]) == (48, False)
    assert beat["at"] < beat["last"]


def test_upcoming_takes_until_limit_kind_and_agent(heartbeat: Schedule) -> None:
    api, soon = Api(), (timezone.now() + timedelta(minutes=20)).isoformat()

    def kinds(**query: object) -> list[str]:
        return [one["kind"] for one in api.get("upcoming/", **query).body["results"]]

    assert kinds(until=soon) == ["wake"]
    assert kinds(limit=1) == ["wake"]
    assert kinds(kind="heartbeat") == ["heartbeat"]
    assert kinds(kind=["heartbeat", "wake"]) == ["wake", "heartbeat"]
    assert kinds(agent="watch") == ["heartbeat"]


@pytest.mark.parametrize("query", [{"until": "2020-01-01T00:00Z"}, {"until": "soon"}, {"limit": 0}, {"kind": "alarm"}])
def test_invalid_input_is_400_and_named(query: dict[str, object]) -> None:
    answer = Api().get("upcoming/", **query)

    assert (answer.status, list(answer.body)) == (400, list(query))


@pytest.mark.parametrize("until", ["soon", "2026-02-30T09:00Z", "1800-01-01T00:00Z"])
def test_an_invalid_until_is_refused_with_the_accepted_forms(until: str) -> None:
    answer = Api().get("upcoming/", until=until)

    [message] = answer.body["until"]
    assert answer.status == 400
    assert "2026-12-01T09:00+01:00" in message or "between the years" in message


def test_until_is_in_utc_unless_it_has_an_offset(heartbeat: Schedule) -> None:
    api, at = Api(), timezone.now().astimezone(UTC) + timedelta(minutes=20)

    def kinds(until: str) -> list[str]:
        return [one["kind"] for one in api.get("upcoming/", until=until).body["results"]]

    assert kinds(f"{at:%Y-%m-%d %H:%M:%S}") == ["wake"]
    assert kinds(f"{at:%Y-%m-%dT%H:%M:%S}+00:00") == ["wake"]
    assert kinds(f"{at + timedelta(hours=1):%Y-%m-%dT%H:%M:%S}+01:00") == ["wake"]


def test_wakes_set_by_runs_require_permission_to_view_runs(heartbeat: Schedule) -> None:
    assert [one["kind"] for one in Api(["triggers.view_schedule"]).get("upcoming/").body["results"]] == ["heartbeat"]
    assert Api(["runs.view_run"], name="other").get("upcoming/").status == 403


def test_meetings_require_permission_to_view_events() -> None:
    source = make_calendar()
    put_meeting(source, timezone.now() + timedelta(hours=1), "Review")

    [meeting] = Api(["triggers.view_schedule", "triggers.view_event"]).get("upcoming/").body["results"]
    assert (meeting["kind"], meeting["name"], meeting["calendar"]) == ("meeting", "Review", str(source.pk))
    assert Api(["triggers.view_schedule"], name="other").get("upcoming/").body["results"] == []
