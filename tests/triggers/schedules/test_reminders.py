"""A reminder wakes an agent once, with its text, and is done."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from agents import registry
from agents.library.reminder import reminder
from agents.testing import run_agent
from runs.models import AuditEntry, Run
from tests.support.triggers import make_trigger
from triggers.dispatch.batch import dispatch
from triggers.dispatch.rules import Rules
from triggers.exceptions import RuleError
from triggers.models import Event, Schedule, Trigger
from triggers.schedules.firing import due_schedules
from triggers.schedules.reminders import remind, text_of
from triggers.schedules.rules.interval import Interval
from triggers.schedules.rules.once import Clocked
from triggers.schedules.rules.rule import Rule
from triggers.upcoming.listing import ahead

pytestmark = pytest.mark.django_db

NINE = datetime(2050, 3, 7, 9, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._agents, "reminder", reminder)


def set_one(text: str = "Call Ada", at: datetime = NINE, **options: Any) -> Schedule:
    schedule = remind(when=Clocked(at=at), text=text, **{"agent": "reminder", "by": "ada", **options})
    due_schedules.settle()
    return Schedule.objects.select_related("task", "trigger").get(pk=schedule.pk)


def test_a_reminder_wakes_its_agent_once_with_its_text_and_is_done() -> None:
    schedule = set_one()

    for _ in range(2):
        due_schedules.fire_due(NINE)
        dispatch(Rules())

    event, run = Event.objects.get(), Run.objects.get()
    assert event.data and event.data["data"] == {"text": "Call Ada"}
    assert (event.time, run.agent, run.event_ids) == (NINE, "reminder", [event.pk])
    assert [notice.text for notice in run_agent(reminder, data=event.data).notifications] == ["Reminder: Call Ada"]
    schedule.refresh_from_db()
    assert (schedule.rest, schedule.next_fire_at, schedule.status) == ("done", None, "done")


def test_however_late_it_comes() -> None:
    set_one()

    due_schedules.fire_due(NINE + timedelta(days=3))

    assert Event.objects.get().time == NINE


def test_a_reminder_has_a_recognisable_name_kind_and_listing() -> None:
    schedule = set_one(text="  Renew\nthe certificate " + "x" * 80)

    assert (schedule.kind, schedule.task.one_off) == ("reminder", True)
    assert schedule.task.name.startswith("reminder ")
    assert schedule.task.name.endswith(": Renew the certificate " + "x" * 37 + "…")
    assert text_of(schedule).startswith("Renew\nthe certificate")
    [coming] = ahead(NINE, NINE + timedelta(days=1), 10)
    assert (coming.kind, coming.why, coming.agent) == ("reminder", text_of(schedule), "reminder")
    assert AuditEntry.objects.get(action="create", kind="schedule").by == "ada"


def test_two_at_one_time_are_two_runs() -> None:
    set_one("Call Ada")
    set_one("Call Bob")
    assert Trigger.objects.get().slug == "reminder-reminders"

    due_schedules.fire_due(NINE)
    dispatch(Rules())

    assert Run.objects.filter(ready_at__isnull=False).count() == 2


def test_a_reminder_may_wake_an_existing_trigger() -> None:
    trigger = make_trigger("digest", types=[])

    schedule = set_one(agent="", trigger=trigger, name="look at it")

    assert (schedule.trigger, schedule.task.name) == (trigger, "look at it")


@pytest.mark.parametrize(
    ("given", "field", "message"),
    [
        ({"text": " "}, "text", "1 to 2000"),
        ({"text": "x" * 2001}, "text", "1 to 2000"),
        ({"when": Interval(every=timedelta(hours=1))}, "when", "comes once"),
        ({"when": Clocked(at=datetime(2020, 1, 1, tzinfo=UTC))}, "when", "past"),
        ({"agent": "nobody"}, "agent", "no agent 'nobody'"),
        ({"agent": ""}, "agent", "either an agent or a trigger"),
    ],
)
def test_an_invalid_reminder_is_refused_with_its_field_and_leaves_no_row(
    given: dict[str, Any], field: str, message: str
) -> None:
    when: Rule = Clocked(at=NINE)

    with pytest.raises(RuleError, match=message) as refused:
        remind(**{"when": when, "text": "Call Ada", "agent": "reminder", "by": "ada", **given})

    assert refused.value.field == field
    assert not Trigger.objects.exists()
    assert not Schedule.objects.exclude(trigger=None).exists()


def test_a_trigger_of_that_name_which_wakes_another_agent_is_left_alone() -> None:
    make_trigger("reminder-reminders", agent="other")

    with pytest.raises(RuleError, match="agent 'other'"):
        set_one()
