"""Switches, from the event that comes or does not to the events of an episode."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db.models.functions import Now

from runs.models import Run
from tests.support.switches import data_of, episodes, later, make_switch, open_due, timer, work
from tests.support.triggers import make_event, make_trigger
from triggers.dispatch.batch import follow_clock
from triggers.dispatch.rules import Rules
from triggers.models import Event, Source, Switch, SwitchTimer
from triggers.sources.edit import change_source

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)
OPENED, CLOSED = ("absence.opened", ""), ("absence.closed", "")
OF_ORDER: dict[str, Any] = {"types": "paid", "of_types": "placed", "key": "event.data.order", "within": "1h"}


def test_a_switch_opens_once_without_any_event_and_closes_at_the_first_one() -> None:
    make_switch()
    work()
    assert episodes() == []

    later(HOUR)
    work()
    work()
    assert episodes() == [OPENED]

    make_event()
    work()
    work()
    assert episodes() == [OPENED, CLOSED]
    assert timer().state == "waiting"


def test_each_matching_event_restarts_the_timer_and_the_opening_names_the_last_one() -> None:
    make_switch(filter="event.data.n > 0")
    later(HOUR * 0.9)
    awaited = make_event(data={"n": 1})
    make_event(data={"n": 0})
    make_event(type="visitor.left", data={"n": 1})
    work()

    later(HOUR * 0.9)
    work()
    assert episodes() == []
    later(HOUR * 0.2)
    work()

    [opened] = Event.objects.filter(type="absence.opened")
    assert opened.cause_event_id == awaited.pk and opened.depth == 0 and opened.root_id == opened.pk
    data = data_of(pk=opened.pk)
    assert data["reason"] == "absent" and data["episode"] == 1 and data["last_seen"]
    assert data["late_by"] == pytest.approx(0.1 * 3600, abs=60)


def test_an_agent_is_woken_by_both_and_the_closing_event_is_caused_by_the_one_that_returned() -> None:
    trigger = make_trigger("keeper", types=["absence.*"], source="orders")
    make_switch()
    later(HOUR)
    work()
    returned = make_event()
    work()

    opened, closed = Event.objects.filter(source__slug="orders").order_by("seq")
    runs = Run.objects.filter(trigger_id=trigger.pk)
    assert [run.event_ids for run in runs.order_by("seq")] == [[opened.pk], [closed.pk]]
    assert (closed.cause_event_id, closed.root_id, closed.depth) == (returned.pk, returned.root_id, 1)
    assert data_of(pk=closed.pk)["opened"] == str(opened.pk)


def test_nothing_opens_before_dispatch_has_passed_its_due_time() -> None:
    make_switch()
    make_event()  # in time, but the dispatcher was away
    SwitchTimer.objects.update(due_at=Now(), look_at=Now())  # Now() is when this test began, and the event came

    assert open_due() == 1  # it is looked at, and put off
    assert (timer().state, episodes()) == ("waiting", [])

    work()
    assert episodes() == [] and timer().seen_at is not None


def test_an_absence_event_is_no_sign_of_life() -> None:
    for slug in ("orders", "visits"):
        make_switch(slug, types="*")
    make_switch("second", types="absence.opened", source="orders", within="2h")
    for _ in range(3):
        later(HOUR)
        work()

    assert (episodes(), episodes("visits")) == ([OPENED], [OPENED])
    assert episodes("second") == [OPENED]
    assert timer("second").seen_at is not None  # its types name the event


def test_an_event_from_the_beginning_of_time_is_dispatched() -> None:
    make_switch(**OF_ORDER, active_hours="mon-fri 09:00-17:00", active_zone="America/New_York")
    event = make_event(type="placed", data={"order": "7"}, time=datetime.min.replace(tzinfo=UTC))

    work()

    event.refresh_from_db()
    assert event.dispatched_at and episodes() == [("absence.opened", "7")]


def test_an_event_that_no_rule_of_it_matches_does_not_hold_it_up() -> None:
    make_switch(source="shop")
    make_event()  # of another source
    later(HOUR)

    open_due()

    assert episodes() == [OPENED]


def test_while_many_events_wait_only_what_was_due_before_the_first_of_them_opens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("triggers.switches.backlog.MOST", 2)
    make_switch("early", source="shop")
    make_switch("late", source="shop")
    for _ in range(2):
        make_event()
    later(HOUR)
    SwitchTimer.objects.filter(source__slug="late").update(due_at=Now(), look_at=Now())

    open_due()

    assert (episodes("early"), episodes("late")) == ([OPENED], [])


def test_a_payment_ends_the_time_of_its_order_alone() -> None:
    make_switch(**OF_ORDER)
    for order in "ab":
        make_event(type="placed", data={"order": order})
    make_event(type="paid", data={"order": "a"})
    work()

    later(HOUR)
    work()

    assert episodes() == [("absence.opened", "b")]
    make_event(type="paid", data={"order": "b"})
    work()
    assert episodes() == [("absence.opened", "b"), ("absence.closed", "b")]


def test_keys_for_which_nothing_is_awaited_are_forgotten() -> None:
    make_switch(**OF_ORDER)
    make_event(type="placed", data={"order": "a"})
    make_event(type="paid", data={"order": "a"})
    work()

    later(2 * HOUR)
    work()

    assert not SwitchTimer.objects.exists()


def test_further_keys_are_turned_away_and_counted() -> None:
    make_switch(**OF_ORDER, most_keys=2)
    for order in "abc":
        make_event(type="placed", data={"order": order})
    work()

    assert sorted(SwitchTimer.objects.values_list("key", flat=True)) == ["a", "b"]
    assert Switch.objects.get().turned_away == 1


def test_a_filter_that_cannot_be_evaluated_is_noted() -> None:
    make_switch(filter="event.data.n > 0")
    make_event(data={})
    work()

    switch = Switch.objects.get()
    assert "'n'" in switch.error or "n" in switch.error
    assert switch.failed_at and timer().seen_at is None


def test_a_disabled_switch_rests_and_begins_from_zero_when_it_is_enabled() -> None:
    source = make_switch()
    change_source(source, {"enabled": False}, by="test")
    work()
    later(5 * HOUR)
    work()
    assert (timer().state, episodes()) == ("idle", [])

    change_source(source, {"enabled": True}, by="test")
    work()
    assert (timer().state, episodes()) == ("waiting", [])
    later(HOUR)
    work()
    assert episodes() == [OPENED]


def test_a_switch_that_is_enabled_again_before_the_dispatcher_looks_begins_from_zero() -> None:
    source = make_switch()
    later(HOUR * 0.9)
    change_source(source, {"enabled": False}, by="test")
    change_source(source, {"enabled": True}, by="test")
    work()

    later(HOUR * 0.9)
    work()
    assert episodes() == []

    later(HOUR * 0.2)
    work()
    assert episodes() == [OPENED]


def test_a_switch_that_is_disabled_when_it_is_due_opens_nothing() -> None:
    source = make_switch()
    later(HOUR)
    change_source(source, {"enabled": False}, by="test")

    open_due()

    assert (timer().state, episodes()) == ("idle", [])


def test_an_open_episode_survives_a_pause() -> None:
    source = make_switch()
    later(HOUR)
    work()
    for enabled in (False, True):
        change_source(source, {"enabled": enabled}, by="test")
        work()

    make_event()
    work()

    assert episodes() == [OPENED, CLOSED]


@pytest.mark.parametrize(("within", "opened"), [("10m", [OPENED]), ("3h", [])])
def test_another_time_moves_what_is_due(within: str, opened: list[tuple[str, str]]) -> None:
    source = make_switch()
    later(HOUR / 2)

    change_source(source, {"settings": {**source.settings, "within": within}}, by="test")
    work()
    later(HOUR)
    work()

    assert episodes() == opened


def test_a_switch_that_watches_something_else_begins_from_zero() -> None:
    source = make_switch()
    later(HOUR)
    work()

    change_source(source, {"settings": {**source.settings, "types": "visitor.left"}}, by="test")
    work()

    assert (timer().state, timer().episode) == ("waiting", 0)


def test_an_episode_is_recorded_once_also_after_a_commit_that_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    make_switch()
    later(HOUR)
    before = SwitchTimer.objects.values().get()
    work()

    SwitchTimer.objects.update(**before)  # as a restore of the one table would leave it
    work()

    assert episodes() == [OPENED]
    assert timer().episode == 1


def test_many_that_are_due_at_once_open_in_few_statements(django_assert_max_num_queries: Any) -> None:
    for number in range(3):
        make_switch(f"switch-{number}")
    later(HOUR)
    rules = Rules()
    rules.current()

    with django_assert_max_num_queries(16):
        open_due(rules)

    assert [episodes(f"switch-{number}") for number in range(3)] == [[OPENED]] * 3


def test_a_settings_row_that_makes_no_sense_stops_no_other_switch() -> None:
    make_switch()
    Source.objects.create(slug="broken", kind="absence", settings={"types": "x", "within": "soon"})
    later(HOUR)

    work()

    assert episodes() == [OPENED]


def test_a_clock_that_was_set_back_restarts_timers_of_the_future() -> None:
    make_switch()
    make_switch("placed", **OF_ORDER)
    later(-5 * HOUR)  # as if the clock were five hours behind
    make_event()

    follow_clock(Rules())
    work()

    due_at, since = timer().due_at, timer().since
    assert due_at and since and due_at - since == HOUR
    later(HOUR)
    work()
    assert episodes() == [OPENED]


def test_a_costly_filter_holds_up_no_other_switch_and_is_answered_beside() -> None:
    make_switch(filter='event.data.names.exists(name, name.matches("^A.*"))')
    make_switch("others")
    make_event(data={"names": ["Ada"]})

    work()

    assert timer().seen_at and timer("others").seen_at
