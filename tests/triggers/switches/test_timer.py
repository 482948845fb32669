"""What an event does to the clock of one key, by the times of the events and not by the order in which they come."""

from datetime import UTC, datetime, timedelta
from itertools import permutations
from typing import Any
from uuid import uuid4

import pytest

from triggers.matching.pending import Item
from triggers.switches.switch import Switch, switch_of
from triggers.switches.timer import Reason, Timer

START = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)  # a Monday
MINUTE = timedelta(minutes=1)
RELATIVE: dict[str, Any] = {"types": "paid", "of_types": "placed", "key": "event.data.order", "within": "30m"}


def at(minutes: float) -> datetime:
    return START + minutes * MINUTE


def item(type: str, time: float, received: float | None = None, **fields: Any) -> Item:
    received = time if received is None else received
    return Item(
        event_id=uuid4(), source="shop", type=type, subject="", time=at(time), received_at=at(received), target_id=None,
        root_id=uuid4(), depth=0, **fields,
    )  # fmt: skip


def switch(kind: str = "absence", **settings: Any) -> Switch:
    return switch_of(uuid4(), "orders", kind, {"types": "paid", "within": "30m", **settings})


def begun(of: Switch, minutes: float = 0) -> Timer:
    timer = Timer(source_id=of.id)
    timer.resume(of, at(minutes))
    return timer


def test_a_switch_waits_from_its_beginning_and_again_from_each_event() -> None:
    orders = switch(grace="5m")
    timer = begun(orders)
    assert timer.due_at == at(35) and timer.since_id is None

    timer.see(orders, seen := item("paid", 20), at(20))

    assert (timer.state, timer.due_at, timer.seen_id) == ("waiting", at(55), seen.event_id)


def test_an_awaited_event_counts_from_its_arrival_and_never_from_the_future() -> None:
    orders = switch()
    timer = begun(orders)

    timer.see(orders, item("paid", 500, received=20), at(21))

    assert timer.due_at == at(50)


def test_an_episode_closes_when_the_event_returns_and_shows_how_late_it_was() -> None:
    orders = switch()
    timer = begun(orders)
    opened = timer.open(at(30), at(31), Reason.ABSENT)

    [closed] = timer.see(orders, item("paid", 40), at(40))

    assert (opened.is_open, opened.episode, opened.at) == (True, 1, at(30))
    assert (closed.is_open, closed.episode, closed.due_at, closed.at) == (False, 1, at(30), at(40))
    assert (timer.state, timer.due_at) == ("waiting", at(70))


def test_an_event_that_was_committed_after_the_look_that_missed_it_counts_from_when_it_was_seen() -> None:
    orders = switch()
    timer = begun(orders)
    timer.open(at(30), at(31), Reason.ABSENT)

    [closed] = timer.see(orders, item("paid", 10), at(90))  # of a transaction that lasted an hour and a half

    assert (closed.is_open, closed.episode, closed.at) == (False, 1, at(90))
    assert (timer.state, timer.due_at) == ("waiting", at(120))  # and not at 40, which is over


@pytest.mark.parametrize("order", list(permutations([("placed", 0), ("paid", 10), ("placed", 20)])))
def test_only_what_came_after_the_last_payment_waits_in_any_order_of_arrival(order: list[tuple[str, float]]) -> None:
    orders = switch(**RELATIVE)
    timer = Timer(source_id=orders.id, key="1")

    for type, minutes in order:
        one = item(type, minutes, received=25)
        timer.begin(orders, one, at(25)) if type == "placed" else timer.see(orders, one, at(25))

    assert (timer.state, timer.since) == ("waiting", at(20))


@pytest.mark.parametrize("order", list(permutations([("placed", 0), ("placed", 5), ("paid", 10)])))
def test_a_payment_ends_all_earlier_orders_in_any_order_of_arrival(order: list[tuple[str, float]]) -> None:
    orders = switch(**RELATIVE)
    timer = Timer(source_id=orders.id, key="1")

    for type, minutes in order:
        one = item(type, minutes, received=15)
        timer.begin(orders, one, at(15)) if type == "placed" else timer.see(orders, one, at(15))

    assert (timer.state, timer.due_at) == ("idle", None)
    assert timer.look_at == at(45)  # it is forgotten then


def test_the_oldest_of_several_orders_is_due_first() -> None:
    orders = switch(**RELATIVE)
    timer = Timer(source_id=orders.id, key="1")

    for minutes in (10, 0, 20):
        timer.begin(orders, item("placed", minutes, received=20), at(20))

    assert timer.due_at == at(30)


def test_an_order_that_arrives_late_still_has_its_grace() -> None:
    orders = switch(**RELATIVE, grace="5m")
    timer = Timer(source_id=orders.id, key="1")

    timer.begin(orders, item("placed", 0, received=120), at(120))

    assert timer.due_at == at(125)


def test_a_ping_with_fail_opens_at_once_and_a_success_closes() -> None:
    backup = switch("ping", every="1d", grace="10m")
    timer = begun(backup)

    [opened] = timer.see(backup, item("ping.fail", 5), at(5))
    again = timer.see(backup, item("ping.fail", 6), at(6))
    [closed] = timer.see(backup, item("ping.success", 7), at(7))

    assert (opened.reason, opened.at, again) == ("failed", at(5), [])
    assert (closed.is_open, timer.state, timer.due_at) == (False, "waiting", at(7 + 24 * 60 + 10))


def test_a_start_without_an_end_is_due_after_the_grace() -> None:
    backup = switch("ping", every="1d", grace="10m")
    timer = begun(backup)

    timer.see(backup, item("ping.start", 5), at(5))
    timer.see(backup, item("ping.log", 6), at(6))

    assert (timer.state, timer.due_at, timer.began_at) == ("waiting", at(15), at(5))
    timer.see(backup, item("ping.success", 8), at(8))
    assert timer.began_at is None and timer.due_at == at(8 + 24 * 60 + 10)


def test_the_time_runs_in_active_hours_alone() -> None:
    orders = switch(active_hours="mon-fri 09:00-17:00", within="60m")
    friday = START + timedelta(days=4, hours=7, minutes=50)  # 16:50
    timer = Timer(source_id=orders.id)

    timer.resume(orders, friday)

    assert timer.due_at == START + timedelta(days=7, minutes=50)
    timer.due_at = friday + timedelta(hours=1)
    assert timer.put_off(orders, friday + timedelta(hours=2)) and timer.due_at == START + timedelta(days=7, minutes=50)
