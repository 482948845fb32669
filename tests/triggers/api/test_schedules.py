"""Schedules over HTTP: every answer exactly, every refusal with its field."""

import json
import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django_celery_beat.models import PeriodicTask

from runs.db.sql import database_now
from runs.models import AuditEntry
from tests.support.api import Api
from tests.support.triggers import make_trigger
from triggers.models import Event, ExclusionCalendar, Schedule, Skip, Trigger
from triggers.schedules.firing import due_schedules as due
from triggers.schedules.rows import add_schedule
from triggers.schedules.rules.crontab import Cron
from triggers.schedules.rules.interval import Interval
from triggers.schedules.rules.rule import Rule
from triggers.schedules.terms.policy import SchedulePolicy

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)
API_PAGE = Path(__file__).resolve().parents[3] / "docs" / "api.md"


def make_schedule(rule: Rule | None = None, *, name: str = "digest", **policy: Any) -> Schedule:
    schedule = add_schedule(
        make_trigger(name, types=[]),
        name=name,
        rule=rule or Cron.parse("0 9 * * *", "Europe/Vienna"),
        policy=SchedulePolicy.parse(policy),
    )
    due.settle()
    return Schedule.objects.select_related("task", "trigger").get(pk=schedule.pk)


# Making


def test_a_schedule_is_made_in_words_and_answered_with_its_next_ten_fires() -> None:
    make_trigger("digest", types=[])

    answer = Api().post(
        "schedules/",
        {
            "name": "mornings",
            "trigger": "digest",
            "when": "every weekday at 09:00",
            "tz": "Europe/Vienna",
            "jitter": "5m",
        },
    )

    assert answer.status == 201
    assert answer.body["rule"] == "At 09:00, Monday through Friday (Europe/Vienna)"
    assert len(answer.body["next_fires"]) == 10
    assert all("T09:00:00+0" in fire for fire in answer.body["next_fires"])
    assert (answer.body["trigger"], answer.body["status"], answer.body["jitter"]) == ("digest", "active", 300)
    schedule = Schedule.objects.get(pk=answer.body["id"])
    assert AuditEntry.objects.get(kind="schedule", object_id=str(schedule.pk)).by == "token:ci"


def test_an_agent_gets_a_trigger_of_its_own() -> None:
    answer = Api().post("schedules/", {"name": "hello", "agent": "order-intake", "when": "every 30m"})

    assert answer.status == 201
    assert Trigger.objects.get(slug=answer.body["trigger"]).agent == "order-intake"


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        ({"when": "every blue moon"}, "when", "every"),
        ({"name": "taken"}, "name", "there is a schedule"),
        ({"trigger": "nobody"}, "trigger", "nobody"),
        ({"trigger": None}, "agent", "either"),
        ({"jitter": [1]}, "jitter", "duration"),
        ({"exclude": "holidays"}, "exclude", "list"),
        ({"start": "2026-12-01T09:00"}, "start", "offset"),
        ({"spraed": "5m"}, "spraed", "Unknown field"),
    ],
)
def test_invalid_input_is_400_with_its_field(change: dict[str, Any], field: str, message: str) -> None:
    make_schedule(name="taken")
    body = {"name": "mornings", "trigger": "taken", "when": "0 9 * * *", "tz": "UTC", **change}

    answer = Api().post("schedules/", body)

    assert (answer.status, list(answer.body)) == (400, [field])
    assert message in str(answer.body[field])
    assert Schedule.objects.count() == 1


def test_a_preview_shows_the_parsed_rule_and_changes_nothing() -> None:
    ExclusionCalendar.objects.create(slug="may", days="*-05-01 Labour Day")

    answer = Api().post(
        "schedules/preview/", {"when": "on the 1st of every month at 08:00", "tz": "Asia/Kathmandu", "exclude": ["may"]}
    )

    assert answer.status == 200
    assert set(answer.body) == {"rule", "next_fires"}
    assert "08:00" in answer.body["rule"] and "Asia/Kathmandu" in answer.body["rule"]
    assert len(answer.body["next_fires"]) == 10
    assert not any("-05-01" in fire for fire in answer.body["next_fires"])
    assert not Schedule.objects.exists()


@pytest.mark.parametrize("path", ["schedules/preview/", "schedules/"])
def test_the_examples_of_the_docs_work_on_a_new_installation(path: str) -> None:
    [body] = re.findall(rf"(?s)-X POST \$API/{path} .*?-d '(\{{.*?\}})'", API_PAGE.read_text())

    assert Api().post(path, json.loads(body)).status in (200, 201)


# Looking


def test_a_list_is_filtered_by_state_kind_trigger_and_name() -> None:
    make_schedule(name="digest")
    make_schedule(name="report")
    make_schedule(name="watch", kind="heartbeat")
    PeriodicTask.objects.filter(name="report").update(enabled=False)
    api = Api()

    def names(**query: Any) -> set[str]:
        return {one["name"] for one in api.get("schedules/", **query).body["results"]}

    assert names() == {"digest", "report", "watch"}
    assert names(enabled="true") == {"digest", "watch"}
    assert names(enabled="false") == {"report"}
    assert names(kind="heartbeat") == {"watch"}
    assert names(trigger="digest") == {"digest"}
    assert names(q="EPO") == {"report"}
    assert api.get("schedules/", kind="nonsense").status == 400


def test_a_schedule_shows_every_field_that_decides_when_it_fires() -> None:
    schedule = make_schedule(spread="90s", active_hours="mon-fri 08:00-18:00", catch_up_window="2h")

    body = Api().get(f"schedules/{schedule.pk}/").body

    assert (body["spread"], body["active_hours"], body["catch_up_window"]) == (90, "mon-fri 08:00-18:00", 7200)
    due, nominal, accounted = (
        datetime.fromisoformat(body[name]) for name in ("due_at", "next_fire_at", "accounted_until")
    )
    assert due > nominal > accounted
    assert (body["rest"], body["status"], body["fires"], body["paused_at"]) == ("", "active", 0, None)


def test_the_next_fires_come_with_when_they_are_due() -> None:
    schedule = make_schedule(Interval.parse("1h"), spread="10m")

    answer = Api().get(f"schedules/{schedule.pk}/fires/", count=3)

    assert answer.status == 200
    assert answer.body["rule"] == "every 1 hour"
    fires, due = ([datetime.fromisoformat(at) for at in answer.body[name]] for name in ("next_fires", "due"))
    assert [later - earlier for earlier, later in zip(fires, fires[1:], strict=False)] == [HOUR, HOUR]
    assert len({later - earlier for earlier, later in zip(fires, due, strict=True)}) == 1


@pytest.mark.parametrize("count", ["0", "101", "many"])
def test_no_more_fires_are_worked_out_than_a_hundred(count: str) -> None:
    assert list(Api().get(f"schedules/{make_schedule().pk}/fires/", count=count).body) == ["count"]


def test_a_list_costs_a_fixed_number_of_queries(django_assert_num_queries: Any) -> None:
    api = Api()
    make_schedule(name="first")
    api.get("schedules/")
    with django_assert_num_queries(4):
        api.get("schedules/")

    for name in ("second", "third", "fourth"):
        make_schedule(name=name)
    with django_assert_num_queries(4):
        api.get("schedules/")


# Changing


def test_a_change_of_one_field_leaves_the_others() -> None:
    schedule = make_schedule(jitter="5m", catch_up="all", catch_up_max=3)

    answer = Api().patch(f"schedules/{schedule.pk}/", {"catch_up_max": 5})

    assert answer.status == 200
    assert (answer.body["catch_up"], answer.body["catch_up_max"], answer.body["jitter"]) == ("all", 5, 300)
    assert answer.body["rule"] == "At 09:00 (Europe/Vienna)"


def test_another_rule_keeps_the_zone_it_had() -> None:
    schedule = make_schedule()

    answer = Api().patch(f"schedules/{schedule.pk}/", {"when": "every day at 17:30"})

    assert answer.body["rule"] == "At 17:30 (Europe/Vienna)"
    assert all("T17:30:00" in fire for fire in answer.body["next_fires"])


def test_a_change_that_makes_no_sense_changes_nothing() -> None:
    schedule = make_schedule(jitter="5m")

    answer = Api().patch(f"schedules/{schedule.pk}/", {"jitter": "1m", "max_fires": "many"})

    assert (answer.status, list(answer.body)) == (400, ["max_fires"])
    schedule.refresh_from_db()
    assert schedule.jitter == timedelta(minutes=5)


def test_the_name_of_a_schedule_cannot_be_changed() -> None:
    assert Api().patch(f"schedules/{make_schedule().pk}/", {"name": "other"}).status == 400


def test_deleting_a_schedule_keeps_its_trigger() -> None:
    schedule = make_schedule()

    answer = Api().delete(f"schedules/{schedule.pk}/")

    assert (answer.status, answer.body) == (204, None)
    assert not PeriodicTask.objects.filter(name="digest").exists()
    assert Trigger.objects.filter(slug="digest").exists()


def test_a_declared_schedule_cannot_be_deleted() -> None:
    schedule = make_schedule()
    Trigger.objects.update(declared={"rule": "0 9 * * *"})

    answer = Api().delete(f"schedules/{schedule.pk}/")

    assert (answer.status, answer.body["status"]) == (409, "declared")
    assert "the next deploy would bring it back" in answer.body["detail"]


# Pausing and running


def test_a_pause_takes_a_note_and_ends_with_a_resume() -> None:
    schedule = make_schedule()
    api = Api()

    paused = api.post(f"schedules/{schedule.pk}/pause/", {"note": "the printer burns"})
    again = api.post(f"schedules/{schedule.pk}/pause/")
    resumed = api.post(f"schedules/{schedule.pk}/resume/")
    twice = api.post(f"schedules/{schedule.pk}/resume/")

    assert (paused.status, paused.body["status"], paused.body["next_fires"]) == (200, "paused", [])
    assert (paused.body["paused_by"], paused.body["paused_note"]) == ("token:ci", "the printer burns")
    assert (again.status, again.body["status"]) == (409, "paused")
    assert (resumed.status, resumed.body["status"], resumed.body["paused_note"]) == (200, "active", "")
    assert (twice.status, twice.body["status"]) == (409, "active")


def test_run_now_answers_with_the_event() -> None:
    schedule = make_schedule()

    answer = Api().post(f"schedules/{schedule.pk}/fire/")

    assert answer.status == 202
    assert Event.objects.get(pk=answer.body["event"]).target_id == schedule.trigger_id


def test_a_schedule_of_a_disabled_trigger_is_not_run() -> None:
    schedule = make_schedule()
    Trigger.objects.update(enabled=False)

    answer = Api().post(f"schedules/{schedule.pk}/fire/")

    assert (answer.status, answer.body["status"]) == (409, "disabled")


# Asking why


def test_why_answers_on_the_clock_of_the_schedule() -> None:
    schedule = make_schedule()

    body = Api().get(f"schedules/{schedule.pk}/why/", at="2050-03-07T09:00").body

    assert (body["verdict"], body["zone"]) == ("to_come", "Europe/Vienna")
    assert body["nominal"] == "2050-03-07T08:00:00Z"
    assert body["text"].startswith("It is still to come")
    assert {"label": "Rule then", "text": "At 09:00 (Europe/Vienna)"} in body["facts"]
    assert (body["before"], body["after"]) == ("2050-03-06T08:00:00Z", "2050-03-08T08:00:00Z")
    assert (body["event"], body["run"], body["decision"], body["skip"]) == (None, None, None, None)


def test_why_accepts_another_zone_and_an_unescaped_offset() -> None:
    api, path = Api(), f"schedules/{make_schedule().pk}/why/"

    tokyo = api.get(path, at="2050-03-07T17:00", tz="Asia/Tokyo")
    offset = api.client.get(f"/api/v1/{path}?at=2050-03-07T09:00+01:00")

    assert tokyo.body["nominal"] == offset.json()["nominal"] == "2050-03-07T08:00:00Z"


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({}, "at"),
        ({"at": "noon"}, "at"),
        ({"at": "0001-01-01T00:00"}, "at"),
        ({"at": "2050-01-01", "tz": "Mars"}, "tz"),
    ],
)
def test_a_question_that_makes_no_sense_is_400(query: dict[str, str], field: str) -> None:
    answer = Api().get(f"schedules/{make_schedule().pk}/why/", **query)

    assert (answer.status, list(answer.body)) == (400, [field])


def test_skips_are_listed_the_latest_first() -> None:
    schedule, other, now = make_schedule(), make_schedule(name="other"), database_now()
    for hours in (3, 1, 2):
        Skip.objects.create(schedule=schedule, reason="missed", first=now - hours * HOUR, last=now - hours * HOUR)
    Skip.objects.create(schedule=other, reason="missed", first=now, last=now)

    first = Api(name="a").get(f"schedules/{schedule.pk}/skips/", limit=2).body

    assert [datetime.fromisoformat(skip["last"]) for skip in first["results"]] == [now - HOUR, now - 2 * HOUR]
    assert first["next"]


# Calendars


def test_a_calendar_is_made_changed_and_deleted() -> None:
    api = Api()

    made = api.post("calendars/", {"slug": "at", "days": "*-12-25 Christmas"})
    changed = api.put("calendars/at/", {"days": "*-12-26"})
    listed = api.get("calendars/")
    gone = api.delete("calendars/at/")

    assert (made.status, made.body) == (201, {"slug": "at", "days": "*-12-25 Christmas"})
    assert (changed.status, changed.body["days"]) == (200, "*-12-26")
    assert [one["slug"] for one in listed.body["results"]] == ["at"]
    assert (gone.status, ExclusionCalendar.objects.count()) == (204, 0)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"slug": "at", "days": "someday"}, "days"),
        ({"slug": "At Home", "days": ""}, "slug"),
        ({"slug": "taken", "days": ""}, "slug"),
        ({"slug": "at"}, "days"),
    ],
)
def test_a_calendar_that_makes_no_sense_is_400(body: dict[str, str], field: str) -> None:
    ExclusionCalendar.objects.create(slug="taken")

    answer = Api().post("calendars/", body)

    assert (answer.status, list(answer.body)) == (400, [field])


# Permissions
