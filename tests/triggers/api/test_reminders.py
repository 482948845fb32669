"""Reminders by the API and the command line, in words."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from agents import registry
from agents.library.reminder import reminder
from runs.models import AuditEntry
from tests.support.api import Api
from tests.support.triggers import make_trigger
from triggers.models import Schedule
from triggers.schedules.reminders import text_of

pytestmark = pytest.mark.django_db

NINE = datetime(2050, 3, 7, 9, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._agents, "reminder", reminder)


def test_the_api_makes_a_reminder_from_words() -> None:
    answer = Api(["triggers.add_schedule"]).post(
        "reminders/", {"when": "in 20 minutes", "agent": "reminder", "text": "Call Ada"}
    )

    schedule = Schedule.objects.get(kind="reminder")
    at = schedule.task.clocked.clocked_time
    assert answer.status == 201
    assert answer.body["schedule"] == schedule.pk
    assert (answer.body["text"], answer.body["trigger"]) == ("Call Ada", "reminder-reminders")
    assert datetime.fromisoformat(answer.body["at"]) == at
    assert timedelta(minutes=19) < at - timezone.now() <= timedelta(minutes=20, seconds=1)
    assert AuditEntry.objects.get(action="create", kind="schedule").by == "token:ci"


def test_the_api_makes_a_reminder_in_a_time_zone_for_an_existing_trigger() -> None:
    make_trigger("digest", types=[])
    body = {"when": "at 2050-03-07T09:00", "tz": "Europe/Vienna", "trigger": "digest", "text": "Call Ada"}

    answer = Api().post("reminders/", body)

    assert (answer.status, answer.body["trigger"]) == (201, "digest")
    assert datetime.fromisoformat(answer.body["at"]) == NINE - timedelta(hours=1)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"agent": "reminder", "text": "Call Ada"}, "when"),
        ({"when": "whenever", "agent": "reminder", "text": "Call Ada"}, "when"),
        ({"when": "every day at 9am", "agent": "reminder", "text": "Call Ada"}, "when"),
        ({"when": "in 20 minutes", "agent": "nobody", "text": "Call Ada"}, "agent"),
        ({"when": "in 20 minutes", "trigger": "nobody", "text": "Call Ada"}, "trigger"),
        ({"when": "in 20 minutes", "agent": "reminder", "text": ""}, "text"),
    ],
)
def test_the_api_names_the_field_that_makes_no_sense(body: dict[str, Any], field: str) -> None:
    answer = Api().post("reminders/", body)

    assert (answer.status, list(answer.body)) == (400, [field])


def test_reminders_require_permission_to_add_schedules() -> None:
    body = {"when": "in 20 minutes", "agent": "reminder", "text": "Call Ada"}

    assert Api(["triggers.view_schedule"]).post("reminders/", body).status == 403


def test_the_remind_command_makes_a_reminder(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("remind", "tomorrow at 9:00", "reminder", "Call Ada", tz="Europe/Vienna")

    schedule = Schedule.objects.get(kind="reminder")
    assert text_of(schedule) == "Call Ada"
    assert "Call Ada" in capsys.readouterr().out
    with pytest.raises(CommandError, match="no agent 'nobody'"):
        call_command("remind", "in 20 minutes", "nobody", "Call Ada")
