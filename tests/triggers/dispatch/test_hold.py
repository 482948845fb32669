from uuid import uuid4

import pytest

from runs.exceptions import IllegalState
from runs.models import NIL, AuditEntry, Run
from tests.support.triggers import hold, make_event, make_paused_trigger, make_trigger
from triggers.dispatch.batch import dispatch
from triggers.dispatch.hold import pause, resume
from triggers.dispatch.offers import move
from triggers.dispatch.rules import Rules
from triggers.exceptions import TriggerDisabled
from triggers.models import Decision, Event, Redispatch
from triggers.replays.replay import replay
from triggers.sources.manual import fire

pytestmark = pytest.mark.django_db


def test_fire_records_an_event_for_this_trigger_alone() -> None:
    trigger = make_trigger()

    event_id = fire(trigger, data={"name": "Ada"}, by="cli:ada")

    event = Event.objects.select_related("source").get(pk=event_id)
    assert (event.source.slug, event.type, event.target_id, event.data) == (
        "manual",
        "manual.fired",
        trigger.id,
        {"name": "Ada"},
    )
    assert event.root_id == event.id
    assert event.ce_source == "cli:ada"


def test_firing_twice_makes_two_events() -> None:
    trigger = make_trigger()

    assert fire(trigger, by="cli:ada") != fire(trigger, by="cli:ada")


def test_a_disabled_trigger_is_not_fired() -> None:
    trigger = make_trigger(enabled=False)

    with pytest.raises(TriggerDisabled, match="greeter is disabled") as refused:
        fire(trigger, by="cli:ada")

    assert refused.value.status == "disabled"
    assert not Event.objects.exists()


def test_pause_gives_the_reason_why_and_who() -> None:
    trigger = pause(make_trigger(), reason="the shop is closed", by="token:ci")

    assert trigger.is_paused
    assert (trigger.status, trigger.paused_reason) == ("paused", "the shop is closed")
    entry = AuditEntry.objects.get()
    assert (entry.by, entry.action, entry.kind, entry.object_id) == ("token:ci", "pause", "trigger", str(trigger.pk))


def test_a_second_pause_is_refused_and_keeps_the_first_reason() -> None:
    trigger = pause(make_trigger(), reason="first", by="token:ci")

    with pytest.raises(IllegalState, match="already paused") as refused:
        pause(trigger, reason="second", by="token:ci")

    assert refused.value.status == "paused"
    trigger.refresh_from_db()
    assert trigger.paused_reason == "first"
    assert AuditEntry.objects.count() == 1


def test_resume_resets_the_count_of_failures() -> None:
    trigger = resume(make_paused_trigger(failures_in_a_row=5), by="token:ci")

    assert (trigger.status, trigger.paused_reason, trigger.failures_in_a_row) == ("active", "", 0)


def test_a_trigger_that_is_not_paused_cannot_be_resumed() -> None:
    with pytest.raises(IllegalState, match="not paused") as refused:
        resume(make_trigger(), by="token:ci")

    assert refused.value.status == "active"


def test_resume_offers_held_events_in_order() -> None:
    trigger = make_paused_trigger()
    events = [make_event() for _ in range(3)]
    for event in events:
        hold(event, trigger)

    resume(trigger, by="token:ci")
    move()

    offered = Redispatch.objects.order_by("seq")
    assert [one.event_id for one in offered] == [event.id for event in events]
    assert {(str(one.replay_id), one.trigger_id, one.by) for one in offered} == {(NIL, trigger.id, "token:ci")}


def test_a_held_replay_is_offered_as_that_replay() -> None:
    trigger = make_paused_trigger()
    replay_id = uuid4()
    hold(make_event(), trigger, replay_id=replay_id)

    resume(trigger, by="token:ci")
    move()

    assert Redispatch.objects.get().replay_id == replay_id


def test_resume_can_drop_held_events() -> None:
    trigger = make_paused_trigger()
    decision = hold(make_event(), trigger)

    resume(trigger, held="drop", by="token:ci")
    move()

    decision.refresh_from_db()
    assert (decision.outcome, decision.reason) == ("dropped", "dropped on resume by token:ci")
    assert not Redispatch.objects.exists()


def test_resume_leaves_other_triggers_alone() -> None:
    trigger, other = make_paused_trigger(), make_paused_trigger("other")
    kept = hold(make_event(), other)

    resume(trigger, held="drop", by="token:ci")
    move()

    kept.refresh_from_db()
    other.refresh_from_db()
    assert kept.outcome == "held"
    assert other.is_paused


def test_replay_redispatches_the_event_under_a_new_replay_id() -> None:
    event, trigger = make_event(), make_trigger()

    first, second = replay(event, trigger=trigger, by="token:ci"), replay(event, by="token:ci")

    assert first != second
    assert Redispatch.objects.get(replay_id=first).trigger == trigger
    assert Redispatch.objects.get(replay_id=second).trigger is None
    assert AuditEntry.objects.filter(action="replay", object_id=str(event.id)).count() == 2


def test_replay_to_a_disabled_trigger_is_refused() -> None:
    with pytest.raises(TriggerDisabled):
        replay(make_event(), trigger=make_trigger(enabled=False), by="token:ci")

    assert not Redispatch.objects.exists()


def test_held_events_that_no_longer_match_are_not_offered_again() -> None:
    trigger = make_trigger()
    pause(trigger, reason="broken", by="test")
    make_event(data={"amount": 1})
    dispatch(Rules())
    trigger.filter = "event.data.amount > 100"
    trigger.save(update_fields=["filter"])

    resume(trigger, by="test")
    dispatch(Rules())

    assert not Run.objects.exists()
    assert not Decision.objects.exists()
