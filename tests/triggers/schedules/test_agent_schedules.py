"""What runs set ahead for their own trigger: single wakes and standing schedules."""

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.utils import timezone
from django_celery_beat.models import PeriodicTask

from agents.exceptions import Permanent
from agents.kernel.effects import Effects, Standing, Wake
from runs.actions.event_runs import runs_of_event
from runs.models import AuditEntry, OutboxMessage
from runs.outbox import deliver_inside
from tests.support.triggers import make_trigger
from triggers.dispatch.batch import dispatch
from triggers.dispatch.hold import pause
from triggers.dispatch.rules import Rules
from triggers.models import Decision, Event, Schedule, Trigger
from triggers.schedules.agent_schedules import check_ahead, set_standing
from triggers.schedules.edit import create_schedule, pause_schedule
from triggers.schedules.preview import describe
from triggers.schedules.rules.crontab import Cron
from triggers.sources.wakeup import pending

pytestmark = pytest.mark.django_db

RUN = uuid4()


@pytest.fixture
def trigger() -> Trigger:
    return make_trigger("onboarding")


def wake(key: str = "1", after: timedelta = timedelta(days=30)) -> Wake:
    return Wake(after=after, data={"customer": 7}, key=key, reason="quarterly review")


def put(trigger: Trigger, name: str = "1", *, due_in: timedelta = timedelta()) -> OutboxMessage:
    """What the commit of a run leaves behind that wants to be woken."""
    return OutboxMessage.objects.create(
        topic="wakeup",
        key=str(trigger.pk),
        payload={
            "trigger": str(trigger.pk), "run": str(RUN), "name": name, "data": {"customer": 7}, "reason": "quarterly review",
        },
        available_at=timezone.now() + due_in,
    )  # fmt: skip


def standing(trigger: Trigger, name: str = "nightly", **rule: Any) -> dict[str, Any]:
    payload = {"cron": "", "tz": "UTC", "every": None, **rule}
    return {"trigger": str(trigger.pk), "run": str(RUN), "name": name, **payload}


def schedules() -> list[tuple[str, str]]:
    return [(str(one), describe(one)) for one in Schedule.objects.exclude(trigger=None).order_by("task__name")]


# Wakes


def test_a_wake_is_an_event_for_its_trigger_alone_at_the_beginning_of_a_chain(trigger: Trigger) -> None:
    make_trigger("nosy", types=["*"])
    put(trigger)

    deliver_inside(10)
    dispatch(Rules())

    event = Event.objects.get()
    assert (event.type, event.source.slug, event.target_id) == ("run.wakeup", "wakeup", trigger.pk)
    assert (event.data, event.headers) == ({"customer": 7}, {"reason": "quarterly review"})
    assert (event.root_id, event.depth, event.chain, event.cause_run_id) == (event.id, 0, [], RUN)
    assert [run.trigger for run in runs_of_event(event.id)] == ["onboarding"]


def test_a_wake_event_is_not_delivered_before_it_is_due(trigger: Trigger) -> None:
    put(trigger, due_in=timedelta(days=30))

    assert deliver_inside(10) == 0
    assert not Event.objects.exists()


def test_a_wake_of_a_paused_trigger_is_held_like_any_event(trigger: Trigger) -> None:
    put(trigger)
    pause(trigger, reason="holiday", by="ada")

    deliver_inside(10)
    dispatch(Rules())

    assert Decision.objects.get().outcome == "held"


def test_a_wake_whose_trigger_is_gone_is_dropped_and_that_is_recorded(trigger: Trigger) -> None:
    put(trigger)
    id = trigger.pk
    trigger.delete()

    deliver_inside(10)

    assert not Event.objects.exists()
    assert not OutboxMessage.objects.exists()
    entry = AuditEntry.objects.get(action="drop")
    assert (entry.kind, entry.object_id) == ("trigger", str(id))
    assert entry.detail == {"name": "1", "run": str(RUN), "reason": "its trigger is gone"}


def test_the_wakes_of_a_trigger_are_listed_soonest_first(trigger: Trigger) -> None:
    put(trigger, "later", due_in=timedelta(days=2))
    put(trigger, "sooner", due_in=timedelta(days=1))
    put(make_trigger("other"), "another's")

    found = pending(trigger)

    assert [one.name for one in found] == ["sooner", "later"]
    assert (found[0].reason, found[0].run_id) == ("quarterly review", RUN)
    assert found[0].due_at > timezone.now()


def test_a_trigger_has_only_so_many_wakes_and_schedules_ahead(trigger: Trigger, settings: Any) -> None:
    settings.WAKEFUL_MAX_WAKES = 3
    put(trigger, due_in=timedelta(days=1))
    set_standing([standing(trigger, every=60.0)])

    check_ahead(trigger.pk, Effects(wakes=[wake()]))
    # One of the same name takes no room of its own, and one that goes makes some.
    check_ahead(trigger.pk, Effects(wakes=[wake()], standings=[Standing(name="nightly", cron="0 3 * * *")]))
    check_ahead(trigger.pk, Effects(wakes=[wake("1"), wake("2")], standings=[Standing(name="nightly")]))
    with pytest.raises(Permanent, match="WAKEFUL_MAX_WAKES is 3"):
        check_ahead(trigger.pk, Effects(wakes=[wake("1"), wake("2")]))
    with pytest.raises(Permanent, match="2 wakes and 2 schedules"):
        check_ahead(trigger.pk, Effects(wakes=[wake()], standings=[Standing(name="hourly", cron="0 * * * *")]))


@pytest.mark.parametrize(
    ("effects", "message"),
    [
        (Effects(wakes=[wake("a"), wake("a")]), "two wakes under the key 'a'"),
        (Effects(standings=[Standing(name="nightly", cron="never")]), "schedule 'nightly'"),
        (Effects(standings=[Standing(name="n", cron="0 3 * * *", tz="Mars/Olympus")]), "Mars/Olympus"),
        (Effects(standings=[Standing(name="x" * 300, cron="0 3 * * *")]), "200 is the most"),
    ],
)
def test_effects_that_would_fail_later_are_refused_at_once(trigger: Trigger, effects: Effects, message: str) -> None:
    with pytest.raises(Permanent, match=message):
        check_ahead(trigger.pk, effects)


def test_a_run_without_a_trigger_has_nothing_to_wake() -> None:
    with pytest.raises(Permanent, match="no trigger of its own"):
        check_ahead(None, Effects(wakes=[wake()]))


# Standing schedules


def test_a_schedule_that_a_run_sets_is_one_like_any_other_and_set_once(trigger: Trigger) -> None:
    set_standing([standing(trigger, cron="0 3 * * *", tz="Europe/Vienna")])
    set_standing([standing(trigger, cron="0 3 * * *", tz="Europe/Vienna")])

    assert schedules() == [("onboarding/nightly", "At 03:00 (Europe/Vienna)")]
    assert AuditEntry.objects.get().by == f"run:{RUN}"


def test_setting_a_schedule_again_changes_its_rule_and_an_empty_rule_removes_it(trigger: Trigger) -> None:
    set_standing([standing(trigger, cron="0 3 * * *")])
    set_standing([standing(trigger, every=3600.0)])
    assert [rule for _, rule in schedules()] == ["every 1 hour"]

    set_standing([standing(trigger)])
    set_standing([standing(trigger)])

    assert schedules() == []
    assert not PeriodicTask.objects.filter(name__startswith="onboarding/").exists()


def test_an_unchanged_schedule_of_a_run_is_not_edited(trigger: Trigger) -> None:
    set_standing([standing(trigger, every=3600.0)])
    edited_at = datetime(2026, 1, 1, tzinfo=UTC)
    Schedule.objects.update(edited_at=edited_at, stale=False)

    set_standing([standing(trigger, every=3600.0)])

    assert (Schedule.objects.get().edited_at, Schedule.objects.get().stale) == (edited_at, False)


def test_a_schedule_of_a_run_that_an_operator_paused_stays_paused(trigger: Trigger) -> None:
    set_standing([standing(trigger, every=3600.0)])
    pause_schedule(Schedule.objects.get(), by="ada")

    set_standing([standing(trigger, every=60.0)])

    assert not Schedule.objects.get().task.enabled


def test_a_name_that_another_schedule_has_is_left_to_it_and_that_is_recorded(trigger: Trigger) -> None:
    create_schedule(name="onboarding/nightly", trigger=make_trigger("other"), rule=Cron.parse("0 5 * * *"), by="ada")

    set_standing([standing(trigger, every=60.0)])

    assert [rule for _, rule in schedules()] == ["At 05:00 (UTC)"]
    assert AuditEntry.objects.get(action="drop").detail["reason"] == "there is another schedule 'onboarding/nightly'"


def test_a_schedule_of_a_trigger_that_is_gone_is_dropped_and_that_is_recorded(trigger: Trigger) -> None:
    payload = standing(trigger, every=60.0)
    trigger.delete()

    set_standing([payload])

    assert not schedules()
    assert AuditEntry.objects.get(action="drop").detail["reason"] == "its trigger is gone"
