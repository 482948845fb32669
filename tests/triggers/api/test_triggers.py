import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from django.db import OperationalError
from django_celery_beat.models import CrontabSchedule, PeriodicTask

from runs.api.strict_json import MAX_DEPTH
from runs.models import NIL, Run
from tests.support.api import Api
from tests.support.notifying import make_recipient
from tests.support.triggers import hold, make_event, make_paused_trigger, make_trigger
from triggers.api.events import EventResource
from triggers.dispatch.batch import dispatch
from triggers.dispatch.offers import move
from triggers.dispatch.rules import Rules
from triggers.models import Decision, Event, Redispatch, Schedule
from triggers.sources.manual import fire

pytestmark = pytest.mark.django_db

NOBODY = "01900000-0000-7000-8000-000000000000"


# --- Triggers ---


def test_fire_asks_for_a_report_of_the_run() -> None:
    make_recipient("ops")
    trigger = make_trigger()

    answer = Api().post("triggers/greeter/fire/", {"report": {"on": "failure", "notify": ["ops"]}})

    assert answer.status == 202
    [report] = json.loads((Event.objects.get(target_id=trigger.id).headers or {})["reports"])
    assert (report["on"], report["notify"], report["by"]) == ("failure", ["ops"], "token:ci")


def test_the_reports_of_a_trigger_are_changed_and_taken_away() -> None:
    make_recipient("ops")
    trigger = make_trigger(policy={"retries": 1})

    answer = Api().patch("triggers/greeter/", {"reports": [{"on": "failure", "notify": ["ops"]}]})
    assert answer.body["policy"] == {"retries": 1, "reports": [{"on": "failure", "notify": ["ops"]}]}

    Api(name="other").patch("triggers/greeter/", {"reports": []})
    trigger.refresh_from_db()
    assert trigger.policy == {"retries": 1}

    refused = Api(name="third").patch("triggers/greeter/", {"reports": [{"event": True}, {"notify": ["bob"]}]})
    assert (refused.status, "bob" in str(refused.body)) == (400, True)


@pytest.mark.parametrize(
    ("report", "why"),
    [
        ({"notify": ["ops"]}, "no recipient is named 'ops'"),
        ({"on": "never", "event": True}, "use end, success, failure"),
        ({"pager": True}, "unknown fields pager"),
        ({}, "goes nowhere"),
        ("ops", "a report is"),
    ],
)
def test_a_wrong_report_is_refused_and_nothing_is_fired(report: Any, why: str) -> None:
    make_trigger()

    answer = Api().post("triggers/greeter/fire/", {"report": report})

    assert answer.status == 400
    assert why in str(answer.body["report"])
    assert not Event.objects.exists()


def test_fire_answers_202_with_the_event() -> None:
    trigger = make_trigger()

    answer = Api().post("triggers/greeter/fire/", {"data": {"name": "Ada"}})

    assert (answer.status, list(answer.body)) == (202, ["event"])
    event = Event.objects.get(pk=answer.body["event"])
    assert (event.target_id, event.data, event.ce_source) == (trigger.id, {"name": "Ada"}, "token:ci")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"dta": 1}', "dta"),
        (b'{"data": "\\u0000"}', "U+0000|u0000"),
        (b'{"data": "\\ud800"}', "surrogate"),
        (b'{"data": NaN}', "NaN"),
        (b'{"data": 1', "not JSON"),
        (b'{"data": 1, "data": 2}', "duplicate name"),
        (b'{"data": ' + b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1) + b"}", "nested"),
        (b"[" * 100_000, "nested|not JSON"),
        (b"[1]", "dictionary"),
        (b"\xff", "UTF-8"),
    ],
)
def test_a_body_that_makes_no_sense_is_400_and_gives_the_reason(body: bytes, message: str) -> None:
    make_trigger()
    api = Api()

    answer = api.client.post("/api/v1/triggers/greeter/fire/", body, content_type="application/json")

    assert answer.status_code == 400
    assert any(word in json.dumps(answer.json()) for word in message.split("|"))
    assert not Event.objects.exists()


def test_a_body_is_parsed_as_json_with_any_content_type() -> None:
    make_trigger()

    answer = Api().client.post("/api/v1/triggers/greeter/fire/", b'{"data": 7}', content_type="text/plain")

    assert answer.status_code == 202
    assert Event.objects.get().data == 7


def test_a_chunked_body_is_refused_rather_than_read_as_none() -> None:
    make_trigger()
    api = Api()

    answer = api.client.generic("POST", "/api/v1/triggers/greeter/fire/", b"", HTTP_TRANSFER_ENCODING="chunked")

    assert answer.status_code == 411
    assert not Event.objects.exists()


def test_a_disabled_trigger_is_409_with_its_state() -> None:
    make_trigger(enabled=False)

    answer = Api().post("triggers/greeter/fire/")

    assert answer.status == 409
    assert answer.body == {
        "detail": "Trigger greeter is disabled. Enable it in the console first.",
        "status": "disabled",
    }


def test_resume_offers_held_events_unless_the_request_drops_them() -> None:
    for slug in ("kept", "dropped"):
        hold(make_event(), make_paused_trigger(slug))
    api = Api()

    kept, dropped = api.post("triggers/kept/resume/"), api.post("triggers/dropped/resume/", {"held": "drop"})

    assert (kept.status, kept.body["status"]) == (dropped.status, dropped.body["status"]) == (200, "active")
    assert kept.body["held"] == 1
    move(), move()
    redispatch = Redispatch.objects.get()
    assert redispatch.trigger and redispatch.trigger.slug == "kept"


def test_an_unknown_way_to_resume_is_400_naming_the_known_ones() -> None:
    make_paused_trigger()

    answer = Api().post("triggers/greeter/resume/", {"held": "keep"})

    assert (answer.status, list(answer.body)) == (400, ["held"])


@pytest.mark.parametrize("path", ["triggers/nobody/fire/", "triggers/nobody/pause/", f"events/{NOBODY}/replay/"])
def test_an_action_on_an_unknown_object_is_404(path: str) -> None:
    assert Api().post(path).status == 404


# --- Events ---


def test_an_event_can_be_read_with_its_payload_and_decisions() -> None:
    trigger = make_paused_trigger()
    event = make_event(data={"name": "Ada"}, subject="door")
    hold(event, trigger)

    body = Api().get(f"events/{event.id}/").body

    assert (body["id"], body["source"], body["type"], body["subject"]) == (str(event.id), "cli", "visitor.came", "door")
    assert body["data"] == {"name": "Ada"}
    assert [(one["trigger"], one["outcome"]) for one in body["decisions"]] == [("greeter", "held")]


@pytest.mark.parametrize("is_deleted", [True, False])
def test_an_event_shows_that_the_trigger_it_is_meant_for_was_deleted_before_dispatch(is_deleted: bool) -> None:
    trigger = make_trigger()
    event_id = fire(trigger, by="test")
    if is_deleted:
        trigger.delete()
    dispatch(Rules())

    body = Api().get(f"events/{event_id}/").body

    assert body["dispatched_at"]
    assert (body["target_deleted"], body["decisions"]) == (is_deleted, [])
    assert Run.objects.filter(event_ids=[event_id]).exists() is not is_deleted


def test_events_are_listed_newest_first_in_pages() -> None:
    events = [str(make_event().id) for _ in range(5)]
    api = Api()

    first = api.get("events/", limit=2).body
    second = api.client.get(first["next"]).json()

    assert [one["id"] for one in first["results"]] == events[:2:-1]
    assert [one["id"] for one in second["results"]] == events[2:0:-1]
    back = api.client.get(second["previous"]).json()
    assert back["results"] == first["results"]
    assert (first["previous"], back["previous"], list(first)) == (None, None, ["next", "previous", "results"])


def test_a_page_stays_right_while_events_come_in() -> None:
    events = [str(make_event().id) for _ in range(4)]
    api = Api()
    first = api.get("events/", limit=2).body
    make_event()

    second = api.client.get(first["next"]).json()

    assert [one["id"] for one in second["results"]] == events[1::-1]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"limit": "0"}, "limit"),
        ({"limit": "many"}, "limit"),
        ({"cursor": "garbage"}, "cursor"),
        ({"cursor": "cD1ub3QtYS11dWlk"}, "cursor"),  # p=not-a-uuid
    ],
)
@pytest.mark.parametrize("path", ["events/", "runs/", "schedules/"])
def test_a_page_that_makes_no_sense_is_400_naming_the_field(path: str, query: dict[str, str], field: str) -> None:
    answer = Api().get(path, **query)

    assert (answer.status, list(answer.body)) == (400, [field])


def test_a_cursor_no_slug_could_be_is_400() -> None:
    answer = Api().get("triggers/", cursor="cD0lMDA=")  # p=%00

    assert answer.status == 400


@pytest.mark.parametrize(
    "path", [f"events/{NOBODY}/", "events/no-uuid/", "events/%00/", "triggers/nobody/", "sources/nobody/"]
)
def test_an_unknown_object_is_404(path: str) -> None:
    assert Api().client.get(f"/api/v1/{path}").status_code == 404


def test_replay_answers_with_the_redispatch() -> None:
    event = make_event()
    make_trigger()
    api = Api()

    one = api.post(f"events/{event.id}/replay/", {"trigger": "greeter"})
    all_ = api.post(f"events/{event.id}/replay/")

    assert (one.status, one.body["event"], one.body["trigger"]) == (200, str(event.id), "greeter")
    assert (all_.status, all_.body["trigger"]) == (200, None)
    assert (
        Redispatch.objects.filter(replay_id__in=[UUID(one.body["replay_id"]), UUID(all_.body["replay_id"])]).count()
        == 2
    )


def test_replay_to_an_unknown_trigger_is_400_naming_the_field() -> None:
    answer = Api().post(f"events/{make_event().id}/replay/", {"trigger": "nobody"})

    assert (answer.status, list(answer.body)) == (400, ["trigger"])


@pytest.mark.parametrize("since", ["soon", "", 5])
def test_an_invalid_since_is_refused_with_the_accepted_forms(since: object) -> None:
    make_trigger()

    answer = Api().post("triggers/greeter/redispatch/", {"since": since})

    [message] = answer.body["since"]
    assert answer.status == 400
    assert "2026-12-01T09:00+01:00" in message


@pytest.mark.parametrize("since", ["2026-12-01T09:00", "2026-12-01T10:00+01:00"])
def test_since_is_in_utc_unless_it_has_an_offset(since: str) -> None:
    trigger = make_trigger()
    for hour in (8, 9):
        Decision.objects.create(
            event=make_event(),
            trigger=trigger,
            replay_id=NIL,
            outcome="error",
            created_at=datetime(2026, 12, 1, hour, tzinfo=UTC),
        )

    assert Api().post("triggers/greeter/redispatch/", {"since": since}).body == {"events": 1}


@pytest.mark.parametrize("body", [b"", {}, {"all": False}, {"since": "2026-12-01", "all": True}])
def test_redispatch_without_since_requires_all(body: Any) -> None:
    Decision.objects.create(event=make_event(), trigger=make_trigger(), replay_id=NIL, outcome="error")

    api = Api()

    answer = api.post("triggers/greeter/redispatch/", body)

    assert (answer.status, list(answer.body)) == (400, ["since"])
    assert api.post("triggers/greeter/redispatch/", {"all": True}).body == {"events": 1}


# --- Schedules and sources ---


def test_sources_are_listed_without_their_secrets() -> None:
    sources = Api().get("sources/").body["results"]

    assert {"api-ci", "cli", "emit", "manual", "run", "schedule", "wakeup"} == {source["slug"] for source in sources}
    assert set(sources[0]) == {"id", "slug", "kind", "enabled", "trusted", "limits", "created_at"}


@pytest.mark.parametrize("path", ["events/", "runs/", "triggers/", "schedules/", "sources/"])
def test_a_list_costs_a_fixed_number_of_queries(path: str, django_assert_max_num_queries: Any) -> None:
    for number in range(5):
        trigger = make_trigger(f"t{number}")
        task = PeriodicTask.objects.create(name=f"s{number}", task="x", crontab=CrontabSchedule.objects.create())
        Schedule.objects.filter(task=task).update(trigger=trigger, next_fire_at="2026-03-01T08:00Z")
        make_event()
    api = Api()
    api.get(path)

    with django_assert_max_num_queries(9 if path == "events/" else 4):  # of events, three ways are tried
        assert api.get(path).status == 200


# --- The whole ---


@pytest.mark.parametrize("path", ["events/", "runs/", "triggers/", "schedules/", "sources/"])
def test_a_method_an_address_does_not_have_is_405(path: str) -> None:
    assert Api().client.delete(f"/api/v1/{path}").status_code == 405


def test_a_database_that_is_away_is_503_with_a_time_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    api = Api()

    def gone(view: EventResource) -> None:
        raise OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(EventResource, "get_queryset", gone)

    answer = api.client.get("/api/v1/events/")

    assert (answer.status_code, answer["Retry-After"]) == (503, "5")
    assert "unexpectedly" not in answer.content.decode()
