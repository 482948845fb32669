"""A row that another session has locked delays what needs it, and no other event."""

from typing import Any

import pytest
from django.db.models import QuerySet

from runs.models import NIL, Alarm, Run
from tests.triggers.factories import hold, make_event, make_paused_trigger, make_trigger
from tests.triggers.test_dispatch_races import locked, patience
from triggers import failures
from triggers.models import Decision, Event, Redispatch, Trigger
from triggers.rules import Rules

pytestmark = pytest.mark.django_db(transaction=True)
__all__ = ["patience"]


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has failed is tried again at once."""
    monkeypatch.setattr(failures, "RETRY", 0.0)


def undispatched() -> set[Any]:
    return set(Event.objects.filter(dispatched_at=None).values_list("pk", flat=True))


def test_a_locked_event_delays_no_other_but_those_of_its_key() -> None:
    make_trigger(overlap="queue", key="event.data.k")
    first, same, other = (make_event(data={"k": key}) for key in "aab")
    work = failures.events(Rules())

    with locked(Event.objects.filter(pk=first.pk)):
        work()
        assert undispatched() == {first.pk, same.pk}

    work()
    assert not undispatched()
    assert [run.event_ids[0] for run in Run.objects.order_by("seq")] == [other.pk, first.pk, same.pk]


def test_a_locked_trigger_delays_no_event_of_another_trigger() -> None:
    paused = make_paused_trigger(types=["paused.*"])
    make_trigger("other")
    waiting, other = make_event(type="paused.came"), make_event()
    work = failures.events(Rules())

    with locked(Trigger.objects.filter(pk=paused.pk)):
        work()
        assert undispatched() == {waiting.pk}

    work()
    assert not undispatched()
    assert Decision.objects.get(event=waiting).outcome == "held"
    assert Run.objects.get().event_ids == [other.pk]


def held_again() -> tuple[Event, QuerySet[Any]]:
    trigger = make_trigger("resumed", types=["resumed.*"])
    event = make_event(type="resumed.came")
    Event.objects.update(dispatched_at=event.received_at)
    decision = hold(event, trigger)
    Redispatch.objects.create(event=event, trigger=trigger, replay_id=NIL, by="test")
    return event, Decision.objects.filter(pk=decision.pk)


def test_a_lock_found_only_while_it_is_written_sets_that_one_event_aside_and_is_a_problem() -> None:
    event, decision = held_again()
    make_trigger("other")
    others = [make_event() for _ in range(7)]
    work = failures.events(Rules())

    with locked(decision):
        for _ in range(20):
            work()
        assert not undispatched()
        assert Redispatch.objects.get().dispatched_at is None
        assert "lock timeout" in Alarm.objects.get(ended_at=None).text
        assert decision.get().outcome == "held"

    for _ in range(5):
        work()
    assert decision.get().outcome == "resumed"
    assert Run.objects.count() == len(others) + 1
    assert not Alarm.objects.filter(ended_at=None).exists()
