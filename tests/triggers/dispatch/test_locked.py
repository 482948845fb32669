"""A row that another session has locked delays what needs it, and no other event."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.db.models import QuerySet

from runs.models import NIL, Alarm, Run
from tests.support.triggers import hold, make_event, make_paused_trigger, make_trigger
from tests.triggers.dispatch.test_races import locked, patience
from triggers.dispatch import failures
from triggers.dispatch.hold import resume
from triggers.dispatch.offers import move
from triggers.dispatch.rules import Rules
from triggers.models import Decision, Event, Redispatch, Trigger

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


def test_no_event_of_its_key_overtakes_one_that_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor where so many wait behind it that they fill batches."""
    monkeypatch.setattr(failures, "HELD_UP", 100)
    monkeypatch.setattr(settings, "WAKEFUL_DISPATCH_BATCH", 10)
    make_trigger(overlap="queue", key="event.data.k")
    first, *same = (make_event(data={"k": "a"}) for _ in range(40))
    other = make_event(data={"k": "b"})
    refuse(first)
    work = failures.events(Rules())
    for _ in range(60):
        work()
        if Run.objects.exists():
            break
    assert [run.event_ids[0] for run in Run.objects.all()] == [other.pk]

    with connection.cursor() as cursor:
        cursor.execute("DROP TRIGGER refuse ON runs_run")
    for _ in range(20):
        work()
    assert [run.event_ids[0] for run in Run.objects.order_by("seq")] == [other.pk, first.pk, *(one.pk for one in same)]


def test_events_behind_another_continue_when_that_is_given_up() -> None:
    make_trigger(overlap="queue", key="event.data.k")
    make_trigger("other", types=["other.*"])
    poison, later = (make_event(data={"k": "a"}) for _ in range(2))
    refuse(poison)
    work = failures.events(Rules())
    for _ in range(20):
        work()
        make_event(type="other.came")

    assert Decision.objects.get().event_id == poison.pk
    assert Run.objects.filter(event_ids=[later.pk]).exists()


def refuse(event: Event) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            f"IF '{event.pk}' = ANY(new.event_ids) THEN RAISE 'refused' USING ERRCODE = '23514'; END IF; RETURN new; END $$;"
            "CREATE TRIGGER refuse BEFORE INSERT ON runs_run FOR EACH ROW EXECUTE FUNCTION refuse()"
        )


@pytest.fixture(autouse=True)
def accepted() -> Iterator[None]:
    yield
    with connection.cursor() as cursor:
        cursor.execute("DROP TRIGGER IF EXISTS refuse ON runs_run")


def test_a_locked_trigger_delays_no_offer_of_another_trigger() -> None:
    emptied, other = make_paused_trigger("emptied"), make_paused_trigger("other")
    held = make_event()
    hold(held, other)
    for trigger in (emptied, other):
        resume(trigger, by="test")

    with locked(Trigger.objects.filter(pk=emptied.pk)):
        assert move() == 1

    assert Redispatch.objects.get().event_id == held.pk
    assert move() == 1  # the end of the other offer
