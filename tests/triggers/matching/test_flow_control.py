"""Rates, debounce and batch: how many runs a trigger's events make."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db.models import F
from hypothesis import given
from hypothesis import strategies as st

from runs.chores import timers
from runs.db.sql import database_now
from runs.models import ProcessedEvent, Run
from tests.support.ahead import set_ahead
from tests.support.stack import eventually
from tests.support.triggers import make_event, make_paused_trigger, make_trigger
from tests.triggers.dispatch.test_overlap import arrive, claim, end, start
from triggers.dispatch.batch import dispatch
from triggers.dispatch.close_windows import close_windows
from triggers.dispatch.failures import windows_that_are_over
from triggers.dispatch.hold import pause, resume
from triggers.dispatch.rates import Use
from triggers.dispatch.rules import Rules
from triggers.matching.flow_control import Intake, Rate
from triggers.matching.trigger_policy import check_policy
from triggers.models import Decision, Event, RateUse, Trigger, Window
from triggers.replays.replay import replay


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[float], None]]:
    """Let so many seconds pass, for the dispatcher and for what is kept in the database alike."""
    passed = 0.0

    def later(seconds: float) -> None:
        nonlocal passed
        passed += seconds
        set_ahead(monkeypatch, timedelta(seconds=passed))
        monkeypatch.setattr(
            f"{close_windows.__module__}.database_now", lambda: database_now() + timedelta(seconds=passed)
        )
        for run in Run.objects.exclude(due_at=None):
            Run.objects.filter(pk=run.pk).update(due_at=run.due_at - timedelta(seconds=seconds))  # type: ignore[operator]
        close_windows(Rules())
        timers.wake_due(100)

    yield later


def outcomes() -> list[str]:
    return list(Decision.objects.order_by("event__seq").values_list("outcome", flat=True))


def handled() -> list[list[Any]]:
    """The numbers of the events that each run handles, in order of the runs."""
    data = dict(Event.objects.values_list("id", "data"))
    return [[data[id] for id in run.event_ids] for run in Run.objects.order_by("seq")]


# Rates


@pytest.mark.django_db
def test_runs_over_the_rate_are_delayed_and_none_is_lost(later: Callable[[float], None]) -> None:
    make_trigger(policy={"rate": "2/m"})
    events = [arrive(n) for n in range(5)]

    assert Run.objects.exclude(ready_at=None).count() == 2
    later(61)
    assert Run.objects.exclude(ready_at=None).count() == 4
    later(61)
    assert Run.objects.exclude(ready_at=None).count() == len(events)
    assert not Decision.objects.exists()


@pytest.mark.django_db
def test_events_over_the_rate_are_dropped_with_a_reason(later: Callable[[float], None]) -> None:
    make_trigger(policy={"rate": "2/m", "overflow": "drop"})

    for n in range(4):
        arrive(n)

    assert handled() == [[0], [1]]
    assert outcomes() == ["rate", "rate"]
    assert "over its rate until" in Decision.objects.first().reason  # type: ignore[union-attr]
    later(61)
    arrive(4)
    assert handled() == [[0], [1], [4]]


@pytest.mark.django_db
@pytest.mark.parametrize("overflow", ["delay", "drop"])
def test_a_clock_that_was_ahead_for_a_while_holds_no_start(later: Callable[[float], None], overflow: str) -> None:
    make_trigger(policy={"rate": "2/m", "overflow": overflow})
    later(86_400)
    arrive(0)
    later(-86_400)

    arrive(1)
    assert Run.objects.exclude(ready_at=None).count() == 2

    # What it let start then counts as of now: the rate still holds.
    arrive(2)
    assert Run.objects.exclude(ready_at=None).count() == 2


@pytest.mark.django_db
def test_a_rate_that_was_full_while_the_clock_was_ahead_drops_for_one_period_and_no_longer(
    later: Callable[[float], None],
) -> None:
    make_trigger(policy={"rate": "1/m", "overflow": "drop"})
    later(86_400)
    arrive(0)
    later(-86_400)

    arrive(1)
    later(61)
    arrive(2)

    assert handled() == [[0], [2]]
    assert outcomes() == ["rate"]


@pytest.mark.django_db
def test_a_start_that_was_put_off_keeps_its_distance_when_the_clock_is_set_back(later: Callable[[float], None]) -> None:
    make_trigger(policy={"rate": "1/m"})
    later(86_400)
    arrive(0)
    arrive(1)
    later(-86_400)

    arrive(2)

    [put_off] = RateUse.objects.get().starts
    assert timedelta(seconds=110) < put_off - database_now() <= timedelta(seconds=120)


@pytest.mark.django_db
def test_a_rate_counts_each_key_by_itself() -> None:
    make_trigger(key="event.data", policy={"rate": "1/h", "overflow": "drop"})

    for name in ("ada", "ada", "bob", "bob"):
        arrive(name)

    assert handled() == [["ada"], ["bob"]]


@pytest.mark.django_db
def test_a_skipped_event_does_not_use_up_the_rate() -> None:
    make_trigger(overlap="skip", policy={"rate": "2/h", "overflow": "drop"})
    for n in range(3):
        arrive(n)
    end(start())

    arrive(3)

    assert handled() == [[0], [3]]
    assert outcomes() == ["overlap", "overlap"]


@pytest.mark.django_db
def test_a_delayed_run_keeps_the_order_of_its_key(later: Callable[[float], None]) -> None:
    trigger = make_trigger(overlap="queue", policy={"rate": "1/m"})
    for n in range(2):
        arrive(n)
    trigger.policy = {}
    trigger.save()
    arrive(2)

    end(start())
    assert claim() is None, "the second is not due yet, and the third does not pass it"
    later(61)
    order = []
    while claimed := claim():
        order += [Event.objects.get(pk=id).data for id in claimed.event_ids]
        end(claimed)
    assert order == [1, 2]


@given(gaps=st.lists(st.floats(0, 40), min_size=1, max_size=40), limit=st.integers(1, 5), period=st.integers(1, 60))
def test_no_span_of_the_period_has_more_starts_than_the_rate(gaps: list[float], limit: int, period: int) -> None:
    rate, use, now = Rate(limit=limit, period=timedelta(seconds=period)), Use(), datetime(2026, 1, 1, tzinfo=UTC)
    starts = []
    for gap in gaps:
        now += timedelta(seconds=gap)
        start = use.next_start(rate, now)
        use.take(start, rate)
        starts.append(start)
        assert start >= now

    assert starts == sorted(starts)
    assert all(late - early >= rate.period for early, late in zip(starts, starts[limit:], strict=False))
    assert len(use.starts) <= limit


# Debounce


@pytest.mark.django_db
def test_a_debounce_waits_for_quiet_and_hands_every_event_over(later: Callable[[float], None]) -> None:
    make_trigger(policy={"debounce": 10})
    for n in range(3):
        arrive(n)
        later(6)
    assert handled() == []
    assert outcomes() == ["collected"] * 3

    later(6)

    assert handled() == [[0, 1, 2]]
    assert set(Decision.objects.values_list("run_id", flat=True)) == {Run.objects.get().pk}
    assert not Window.objects.exists()


@pytest.mark.django_db
def test_a_debounce_waits_no_longer_than_its_max_wait(later: Callable[[float], None]) -> None:
    make_trigger(policy={"debounce": 10, "max_wait": 25})
    for n in range(6):
        arrive(n)
        later(6)

    assert handled()[0] == [0, 1, 2, 3, 4]


@pytest.mark.django_db
def test_an_event_after_the_quiet_opens_a_new_window_though_none_was_closed_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_trigger(policy={"debounce": 10})
    arrive(0)
    set_ahead(monkeypatch, timedelta(seconds=11))

    arrive(1)

    assert handled() == [[0]]
    assert Window.objects.get().event_ids == [Event.objects.get(data=1).pk]


@pytest.mark.django_db
def test_each_key_has_a_window_of_its_own(later: Callable[[float], None]) -> None:
    make_trigger(key="event.data", policy={"debounce": 10})
    for name in ("ada", "bob", "ada"):
        arrive(name)

    later(11)

    assert sorted(handled()) == [["ada", "ada"], ["bob"]]


# Batch


@pytest.mark.django_db
def test_a_batch_closes_with_its_last_event() -> None:
    make_trigger(policy={"batch": 3})

    for n in range(7):
        arrive(n)

    assert handled() == [[0, 1, 2], [3, 4, 5]]
    assert Window.objects.get().event_ids == [Event.objects.get(data=6).pk]


@pytest.mark.django_db
def test_a_batch_fills_within_one_dispatch_too(later: Callable[[float], None]) -> None:
    make_trigger(policy={"batch": 3, "max_wait": 60})
    for n in range(8):
        make_event(data=n)

    dispatch(Rules())
    later(61)

    assert handled() == [[0, 1, 2], [3, 4, 5], [6, 7]]


@pytest.mark.django_db
def test_a_window_is_judged_by_its_overlap_when_it_closes(later: Callable[[float], None]) -> None:
    make_trigger(overlap="skip", policy={"batch": 2})
    for n in range(2):
        arrive(n)
    start()

    for n in range(2, 4):
        arrive(n)

    assert handled() == [[0, 1]]
    assert outcomes() == ["collected", "collected", "overlap", "overlap"]


# Windows and the promises


@pytest.mark.django_db
def test_an_event_dispatched_twice_is_handed_over_once(later: Callable[[float], None]) -> None:
    make_trigger(policy={"debounce": 10})
    arrive(0)
    Event.objects.update(dispatched_at=None)
    dispatch(Rules())

    later(11)
    end(start())

    assert handled() == [[0]]
    assert ProcessedEvent.objects.count() == 1


@pytest.mark.django_db
def test_every_event_of_a_batch_is_processed_once_and_a_redelivery_changes_nothing() -> None:
    make_trigger(policy={"batch": 3})
    events = [make_event(data=n, ce_id=f"delivery-{n}") for n in range(3)]
    for n in range(3):
        make_event(data=n, ce_id=f"delivery-{n}")
    dispatch(Rules())

    end(start())

    assert handled() == [[0, 1, 2]]
    assert set(ProcessedEvent.objects.values_list("event_id", flat=True)) == {event.pk for event in events}
    assert claim() is None


@pytest.mark.django_db
def test_an_event_of_two_windows_is_reported_to_be_in_the_run_of_each() -> None:
    pairs, triples = make_trigger("pairs", policy={"batch": 2}), make_trigger("triples", policy={"batch": 3})

    for n in range(3):
        make_event(data=n)
    dispatch(Rules())

    for trigger, size in ((pairs, 2), (triples, 3)):
        run = Run.objects.get(trigger=trigger.slug)
        joined = Decision.objects.filter(trigger=trigger, run_id=run.pk).values_list("event", flat=True)
        assert len(run.event_ids) == size
        assert set(joined) == set(run.event_ids)


@pytest.mark.django_db
def test_a_replay_opens_a_window_of_its_own(later: Callable[[float], None]) -> None:
    make_trigger(policy={"debounce": 10})
    event = arrive(0)
    replay(event, by="test")
    dispatch(Rules())

    later(11)

    assert handled() == [[0], [0]]


@pytest.mark.django_db
def test_collected_events_are_held_if_their_trigger_is_paused(later: Callable[[float], None]) -> None:
    trigger = make_trigger(policy={"debounce": 10})
    for n in range(2):
        arrive(n)
    pause(trigger, reason="broken", by="test")

    later(11)
    assert handled() == []
    assert outcomes() == ["held", "held"]

    resume(trigger, by="test")
    dispatch(Rules())
    later(11)
    assert handled() == [[0, 1]]
    assert outcomes() == ["collected", "collected"]


@pytest.mark.django_db
def test_windows_are_closed_though_the_trigger_has_none_any_more(later: Callable[[float], None]) -> None:
    trigger = make_trigger(policy={"debounce": 10})
    arrive(0)
    trigger.policy = {}
    trigger.save()

    later(11)

    assert handled() == [[0]]


@pytest.mark.django_db
def test_a_window_meets_the_rate_when_it_closes(later: Callable[[float], None]) -> None:
    make_trigger(policy={"batch": 2, "rate": "1/h", "overflow": "drop"})

    for n in range(4):
        arrive(n)

    assert handled() == [[0, 1]]
    assert outcomes() == ["collected", "collected", "rate", "rate"]


@pytest.mark.django_db
def test_the_decision_of_a_collected_event_names_the_run_of_its_trigger() -> None:
    batched = make_trigger("greeter", policy={"batch": 2})
    held = make_paused_trigger("held")
    events = [make_event()]
    dispatch(Rules())
    events.append(make_event())  # the window is full, and in the same batch the other trigger gets its run of the first
    resume(held, by="test")

    dispatch(Rules())

    run = Run.objects.get(trigger="greeter")
    assert run.event_ids == [event.id for event in events]
    assert set(Decision.objects.filter(trigger=batched).values_list("run_id", flat=True)) == {run.id}


@pytest.mark.django_db
def test_a_window_that_can_become_no_run_is_given_up_with_a_reason_and_stops_no_other(
    later: Callable[[float], None],
) -> None:
    hopeless = make_trigger("hopeless", policy={"debounce": 10, "rate": "1/30d"})
    make_trigger(policy={"debounce": 10})
    last_days = datetime(9999, 12, 31, tzinfo=UTC)
    RateUse.objects.create(key=f"{hopeless.pk}:", starts=[last_days])
    arrive(0)
    Window.objects.filter(trigger=hopeless).update(due_at=F("due_at") - timedelta(seconds=1))

    with pytest.raises(OverflowError):
        later(11)
    closing = windows_that_are_over(Rules())
    eventually(lambda: closing() and not Window.objects.exists())

    assert handled() == [[0]]
    assert dict(Decision.objects.values_list("trigger__slug", "outcome")) == {
        "hopeless": "error",
        "greeter": "collected",
    }
    assert "OverflowError" in Decision.objects.get(trigger=hopeless).reason
    assert not Window.objects.exists()


# What may be written


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({"rate": "10 per hour"}, "10/h"),
        ({"rate": "0/h"}, "10/h"),
        ({"rate": "5000/h"}, "shorter period"),
        ({"rate": "1/9999999999999d"}, "at most a year"),
        ({"rate": 10}, "use a string"),
        ({"overflow": "explode"}, "use delay or drop"),
        ({"debounce": -1}, "debounce"),
        ({"debounce": "soon"}, "debounce"),
        ({"batch": 1.5}, "batch"),
        ({"batch": 100_000}, "batch"),
        ({"debouce": 10}, "unknown fields: debouce"),
    ],
)
def test_an_invalid_setting_is_refused_by_name(policy: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_policy(policy, overlap="allow", key_limit=1)


def test_cancel_previous_requires_a_key_limit_of_one() -> None:
    with pytest.raises(ValueError, match="key_limit must be 1"):
        check_policy({}, overlap="cancel_previous", key_limit=2)


def test_a_rate_is_written_as_a_number_of_starts_in_a_span() -> None:
    assert Rate.parse("100/15m") == Rate(limit=100, period=timedelta(minutes=15))
    assert Rate.parse("10/h") == Rate(limit=10, period=timedelta(hours=1))


def test_a_debounce_waits_at_most_ten_times_its_length_by_default() -> None:
    assert Intake.load({"debounce": 30}).max_wait == timedelta(minutes=5)
    assert Intake.load({"debounce": 30, "max_wait": 40}).max_wait == timedelta(seconds=40)
    assert Intake.load({"batch": 30}).max_wait == timedelta(minutes=1)


@pytest.mark.django_db
def test_a_trigger_whose_policy_makes_no_sense_shows_it_of_each_event() -> None:
    Trigger.objects.create(slug="t", agent="a", types=["*"], policy={"rate": "often"})

    arrive(0)

    assert (Decision.objects.get().outcome, "10/h" in Decision.objects.get().reason) == ("error", True)
