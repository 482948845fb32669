"""What was held, or ended in an error, is dispatched again in pieces, beside fresh events."""

import json
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone
from pytest_django import Settings

from config.health.problems import problems
from config.health.situation import read_situation
from runs.chores import timers
from runs.db.sql import database_now, execute
from runs.exceptions import IllegalState
from runs.models import NIL, AuditEntry, Run
from tests.support.triggers import hold, make_event, make_paused_trigger, make_trigger
from triggers.dispatch import offers
from triggers.dispatch.batch import Batch, dispatch
from triggers.dispatch.close_windows import close_windows
from triggers.dispatch.hold import pause, resume
from triggers.dispatch.looks import read_dispatch_timers as look_for_work
from triggers.dispatch.loop import seconds_until_next
from triggers.dispatch.offers import move, offer_errors
from triggers.dispatch.rules import Rules
from triggers.models import Decision, Event, Offer, Redispatch, Trigger, Window
from triggers.replays.replay import replay

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offers, "PIECE", 3)


def held_events(trigger: Trigger, count: int) -> list[Event]:
    events = [make_event(data={"id": 1}) for _ in range(count)]
    for event in events:
        hold(event, trigger)
    Event.objects.update(dispatched_at=timezone.now())
    return events


def dispatch_until(over: Callable[[], bool]) -> int:
    rules = Rules()
    for passes in range(60):
        if over():
            return passes
        dispatch(rules)
    pytest.fail("it takes too long")


def over() -> bool:
    return not (
        Offer.objects.exists()
        or Redispatch.objects.filter(dispatched_at=None).exists()
        or Event.objects.filter(dispatched_at=None).exists()
    )


def events_run() -> list[object]:
    return [run.event_ids[0] for run in Run.objects.order_by("seq")]


def test_a_resume_moves_a_piece_at_a_time_and_fresh_events_pass() -> None:
    trigger = make_paused_trigger()
    held = held_events(trigger, 10)

    resume(trigger, by="test")
    move()
    fresh = make_event()
    assert Redispatch.objects.count() == 3
    move()
    assert Redispatch.objects.count() == 3  # no more while these wait

    dispatch(Rules())
    assert fresh.pk in events_run()
    dispatch_until(over)
    assert set(events_run()) == {event.pk for event in [*held, fresh]}
    assert set(Decision.objects.values_list("outcome", flat=True)) == {"resumed"}
    trigger.refresh_from_db()
    assert trigger.resuming_at is None


def test_errors_dispatched_again_during_a_resume_let_no_fresh_event_pass_the_held_ones() -> None:
    trigger = make_paused_trigger(key="event.data.id", overlap="queue")
    held = held_events(trigger, 30)
    failed = make_event(data={"id": 2})
    Event.objects.filter(pk=failed.pk).update(dispatched_at=timezone.now())
    Decision.objects.create(event=failed, trigger=trigger, outcome="error", reason="a bug", replay_id=NIL)
    resume(trigger, by="test")
    offer_errors(trigger=trigger, by="test")
    dispatch_until(lambda: not Offer.objects.filter(outcome="error").exists())
    assert Offer.objects.filter(outcome="held").exists()

    fresh = make_event(data={"id": 1})
    dispatch_until(over)

    of_key = [id for id in events_run() if id != failed.pk]
    assert of_key == [event.pk for event in [*held, fresh]]


def test_fresh_events_of_a_key_wait_behind_those_that_were_held() -> None:
    trigger = make_paused_trigger(key="event.data.id", overlap="queue")
    held = held_events(trigger, 8)

    resume(trigger, by="test")
    fresh = [make_event(data={"id": 1}) for _ in range(2)]
    dispatch(Rules())
    later = make_event(data={"id": 1})
    dispatch_until(over)

    assert events_run() == [event.pk for event in [*held, *fresh, later]]


def test_a_pause_during_a_resume_holds_the_rest_and_the_next_resume_goes_on() -> None:
    trigger = make_paused_trigger(key="event.data.id", overlap="queue")
    held = held_events(trigger, 8)
    resume(trigger, by="test")
    dispatch(Rules())
    some = len(events_run())
    assert 0 < some < 8

    pause(trigger, reason="again", by="test")
    dispatch_until(over)
    assert len(events_run()) == some
    assert Decision.objects.filter(outcome="held").count() == 8 - some

    resume(trigger, by="test")
    dispatch_until(over)
    assert events_run() == [event.pk for event in held]


def test_a_pause_and_resume_while_held_events_are_dispatched_keep_the_order_of_a_key(
    monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    monkeypatch.setattr(offers, "PIECE", 6)
    settings.WAKEFUL_DISPATCH_BATCH = 4
    trigger = make_paused_trigger(key="event.data.id", overlap="queue")
    held = held_events(trigger, 6)
    resume(trigger, by="test")
    move()
    pause(trigger, reason="again", by="test")
    dispatch(Rules())
    assert Redispatch.objects.exclude(dispatched_at=None).count() == 2  # they are held again

    resume(trigger, by="test")
    dispatch_until(over)

    assert events_run() == [event.pk for event in held]


def test_a_resume_takes_back_no_replay_and_no_error_that_waits_for_dispatch() -> None:
    trigger = make_trigger()
    failed, replayed = make_event(), make_event()
    dispatch(Rules())
    Run.objects.filter(event_ids=[failed.pk]).delete()
    Decision.objects.create(event=failed, trigger=trigger, outcome="error", reason="a bug", replay_id=NIL)
    pause(trigger, reason="a bug", by="test")
    [held] = held_events(trigger, 1)
    offer_errors(trigger=trigger, by="test")
    move()
    replay(replayed, trigger=trigger, by="test")

    resume(trigger, by="test")
    dispatch_until(over)

    runs = [run.event_ids[0] for run in Run.objects.order_by("seq")]
    assert sorted(runs) == sorted([failed.pk, held.pk, replayed.pk, replayed.pk])


def test_dropped_events_do_not_run_even_if_an_earlier_resume_had_offered_them() -> None:
    trigger = make_paused_trigger()
    held_events(trigger, 8)
    resume(trigger, by="test")
    move()
    pause(trigger, reason="again", by="test")

    resume(trigger, held="drop", by="test")
    while Offer.objects.exists():
        move()

    assert set(Decision.objects.values_list("outcome", flat=True)) == {"dropped"}
    dispatch_until(over)
    assert not Run.objects.exists()


def test_redispatches_take_half_of_a_batch_and_each_trigger_its_turn() -> None:
    many, few = make_trigger("many"), make_trigger("few")
    event = make_event()
    dispatch(Rules())
    for trigger, count in ((many, 20), (few, 2)):
        for number in range(count):
            Redispatch.objects.create(event=event, trigger=trigger, replay_id=f"{number:032}", by="test")
    fresh = [make_event() for _ in range(10)]

    from triggers.matching.pending import read_items

    items = read_items(8)

    again = [item.trigger_id for item in items if item.is_resumption]
    assert again.count(few.pk) == again.count(many.pk) == 2
    assert [item.event_id for item in items if not item.is_resumption] == [event.pk for event in fresh[:4]]


def test_events_with_errors_are_dispatched_again_and_run_once() -> None:
    trigger, other = make_trigger(), make_trigger("other", policy={"timeout": "soon"})
    events = [make_event() for _ in range(5)]
    dispatch(Rules())
    # One that had its run before the error was recorded.
    Decision.objects.create(event=events[0], trigger=trigger, replay_id="0" * 32, outcome="error")
    Trigger.objects.filter(pk=other.pk).update(policy={})

    assert offer_errors(by="cli:ada") == 6
    dispatch_until(over)

    assert Run.objects.filter(trigger="greeter").count() == 5
    assert Run.objects.filter(trigger="other").count() == 5
    assert set(Decision.objects.values_list("outcome", flat=True)) == {"resumed"}
    assert AuditEntry.objects.get(action="redispatch_errors").detail["events"] == 6


def test_errors_are_offered_once_however_often_they_recur() -> None:
    trigger = make_trigger(policy={"timeout": "soon"})
    for _ in range(5):
        make_event()
    dispatch(Rules())

    assert offer_errors(trigger=trigger, by="cli:ada") == 5
    dispatch_until(over)

    assert Decision.objects.filter(outcome="error").count() == 5
    assert Redispatch.objects.count() == 5


def test_errors_before_an_instant_and_events_without_payload_are_left_alone() -> None:
    make_trigger(policy={"timeout": "soon"})
    first, second, third = (make_event() for _ in range(3))
    dispatch(Rules())
    Decision.objects.filter(event=first).update(created_at=timezone.now() - timedelta(days=2))
    Event.objects.filter(pk=second.pk).update(data=None, body=None, headers=None, payload_removed_at=timezone.now())

    assert offer_errors(since=timezone.now() - timedelta(days=1), by="cli:ada") == 1
    dispatch_until(over)

    assert [again.event_id for again in Redispatch.objects.all()] == [third.pk]


def test_the_command_line_dispatches_errors_again(capsys: pytest.CaptureFixture[str]) -> None:
    make_trigger(policy={"timeout": "soon"})
    make_event()
    dispatch(Rules())

    call_command("replay", "--errors", "--trigger", "greeter", "--json")

    assert json.loads(capsys.readouterr().out) == {"trigger": "greeter", "since": None, "events": 1}
    assert Offer.objects.get().outcome == "error"
    with pytest.raises(CommandError, match="Name events"):
        call_command("replay")


def test_two_offers_of_errors_cover_those_since_the_earlier_instant() -> None:
    trigger = make_trigger(policy={"timeout": "soon"})
    for _ in range(5):
        make_event()
    dispatch(Rules())
    now = timezone.now()

    offer_errors(trigger=trigger, since=now - timedelta(days=2), by="ann")
    offer_errors(trigger=trigger, since=now - timedelta(days=1), by="bob")
    assert Offer.objects.get().since == now - timedelta(days=2)
    offer_errors(trigger=trigger, by="ann")
    offer_errors(trigger=trigger, since=now, by="bob")
    assert Offer.objects.get().since is None

    dispatch_until(over)
    assert Redispatch.objects.count() == 5


def test_a_drop_completes_after_a_second_pause_and_spares_events_held_since() -> None:
    trigger = make_paused_trigger()
    held_events(trigger, 8)
    resume(trigger, held="drop", by="ann")
    move()
    pause(trigger, reason="again", by="bob")
    [since] = held_events(trigger, 1)

    with pytest.raises(IllegalState, match="still being dropped"):
        resume(trigger, by="bob")
    trigger.refresh_from_db()
    assert trigger.is_paused
    dispatch_until(over)

    assert list(Decision.objects.order_by("id").values_list("outcome", flat=True)) == ["dropped"] * 8 + ["held"]
    resume(trigger, by="bob")
    dispatch_until(over)
    assert events_run() == [since.pk]


def test_events_held_by_an_old_decision_in_a_new_pause_are_not_dropped() -> None:
    trigger = make_trigger(policy={"debounce": 60, "max_wait": 3600})
    collected = make_event()
    dispatch(Rules())
    pause(trigger, reason="a bug", by="ann")
    held = held_events(trigger, 12)
    failed = make_event()
    Event.objects.update(dispatched_at=timezone.now())
    Decision.objects.create(event=failed, trigger=trigger, outcome="error", reason="a bug", replay_id=NIL)
    resume(trigger, held="drop", by="ann")
    pause(trigger, reason="again", by="bob")

    Window.objects.update(due_at=timezone.now() - timedelta(seconds=1))
    close_windows(Rules())
    Redispatch.objects.create(event=failed, trigger=trigger, replay_id=NIL, by="bob")
    dispatch_until(over)

    since = Decision.objects.filter(event__in=[collected, failed])
    assert list(since.values_list("outcome", flat=True)) == ["held", "held"]
    before = Decision.objects.filter(event__in=held)
    assert set(before.values_list("outcome", flat=True)) == {"dropped"}


def test_a_later_drop_includes_events_that_are_held_again() -> None:
    trigger = make_paused_trigger()
    held_events(trigger, 4)
    resume(trigger, held="drop", by="ann")
    pause(trigger, reason="again", by="bob")
    held_events(trigger, 4)
    resume(trigger, held="drop", by="bob")
    pause(trigger, reason="and again", by="bob")
    held_events(trigger, 1)

    dispatch_until(over)

    assert list(Decision.objects.order_by("id").values_list("outcome", flat=True)) == ["dropped"] * 8 + ["held"]


REFUSE = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no room' USING ERRCODE = '53100'; END $$;
CREATE TRIGGER refuse BEFORE INSERT ON triggers_redispatch FOR EACH ROW WHEN (NEW.trigger_id = '{id}') EXECUTE FUNCTION refuse()
"""


def test_an_offer_that_fails_is_put_off_and_a_problem_and_the_others_go_on() -> None:
    bad, good = make_paused_trigger("bad"), make_paused_trigger("good")
    held = held_events(bad, 2)
    held_events(good, 4)
    execute(REFUSE.format(id=bad.pk))
    resume(bad, by="ann")
    resume(good, by="ann")

    dispatch_until(lambda: not Offer.objects.filter(trigger=good).exists())
    for failures in range(3):
        Offer.objects.update(moved_at=timezone.now() - timedelta(seconds=1), failures=failures)
        before = database_now()
        assert offers.are_due()
        assert move() == 0
        put_off = Offer.objects.get()
        assert put_off.failures == failures + 1
        assert put_off.moved_at >= before + timedelta(seconds=2**failures)

    assert Run.objects.filter(trigger="good").count() == 4
    [problem] = [one for one in problems(read_situation()) if one.name.startswith("offer:")]
    assert problem.text.startswith("Held events of trigger bad cannot be dispatched again: OperationalError")
    assert "no room" in problem.text
    assert problem.is_alarm

    execute("DROP TRIGGER refuse ON triggers_redispatch")
    Offer.objects.update(moved_at=timezone.now() + timedelta(days=1))  # by a clock that was ahead
    dispatch_until(over)
    assert [run.event_ids[0] for run in Run.objects.filter(trigger="bad").order_by("seq")] == [
        event.pk for event in held
    ]
    assert not [one for one in problems(read_situation()) if one.name.startswith("offer:")]


NOTHING_IS_DUE = timers.RunTimers(
    ready=False,
    lost=False,
    due=None,
    wait=None,
    look_back=None,
    inside={},
    outside=None,
    slow=None,
    lease_expiry=None,
)


def test_a_dispatcher_with_nothing_to_do_wakes_when_an_offer_that_was_put_off_is_due(settings: Settings) -> None:
    settings.WAKEFUL_SAFETY_LOOK = timedelta(hours=1)
    bad = make_paused_trigger("bad")
    held_events(bad, 2)
    execute(REFUSE.format(id=bad.pk))
    resume(bad, by="ann")
    assert timers.is_due(look_for_work().offer)
    move()
    Offer.objects.update(moved_at=timezone.now() + timedelta(seconds=20))

    work = look_for_work()

    assert not timers.is_due(work.offer)
    assert seconds_until_next(Batch(), work, NOTHING_IS_DUE, at_most=3600) <= 20
    Offer.objects.update(moved_at=timezone.now() + timedelta(days=1))  # by a clock that was ahead
    assert timers.is_due(look_for_work().offer)
    Offer.objects.all().delete()
    assert seconds_until_next(Batch(), look_for_work(), NOTHING_IS_DUE, at_most=3600) == 3600
