"""Which items are due together, and when each is due next."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from agents.checklists.due import MOST_AHEAD, ahead, due_together, first_due, next_due

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)


@dataclass(frozen=True)
class Item:
    due_at: datetime
    every: timedelta | None = None


intervals = st.one_of(st.none(), st.timedeltas(timedelta(seconds=1), timedelta(days=366)))
instants = st.timedeltas(timedelta(days=-400), timedelta(days=400)).map(lambda delta: NOW + delta)
items = st.builds(Item, instants, intervals)


@given(st.lists(items))
def test_every_due_item_is_in_the_turn(all_items: list[Item]) -> None:
    turn = due_together(all_items, NOW)

    assert [item for item in all_items if item.due_at <= NOW] == [item for item in turn if item.due_at <= NOW]


@given(st.lists(items))
def test_an_item_is_taken_along_only_by_one_that_is_due(all_items: list[Item]) -> None:
    turn = due_together(all_items, NOW)

    assert not turn or any(item.due_at <= NOW for item in turn)


@given(st.lists(items))
def test_no_item_comes_more_than_a_tenth_of_its_interval_early(all_items: list[Item]) -> None:
    for item in due_together(all_items, NOW):
        early = max(item.due_at - NOW, timedelta())
        assert early <= MOST_AHEAD
        assert early <= (item.every / 10 if item.every else timedelta())


@given(st.lists(items))
def test_the_turn_keeps_the_order_of_the_list(all_items: list[Item]) -> None:
    left = iter(all_items)

    assert all(any(item is one for one in left) for item in due_together(all_items, NOW))


@given(instants, st.timedeltas(timedelta(seconds=1), timedelta(days=366)))
def test_the_next_time_is_the_first_of_the_grid_that_is_later(due_at: datetime, every: timedelta) -> None:
    after = next_due(due_at, every, NOW)

    assert after > NOW
    assert (after - due_at) % every == timedelta()
    assert after - every <= max(NOW, due_at)


@given(instants, st.timedeltas(timedelta(seconds=1), timedelta(days=366)), st.integers(2, 50))
def test_repeated_looks_at_one_time_move_the_due_time_by_at_most_one_interval(
    due_at: datetime, every: timedelta, looks: int
) -> None:
    once = again = next_due(due_at, every, NOW)
    for _ in range(looks):
        again = next_due(again, every, NOW)

    assert again - once <= every


@given(instants)
def test_an_item_without_an_interval_is_due_at_once_again(due_at: datetime) -> None:
    assert next_due(due_at, None, NOW) == NOW


@given(st.integers(1, 200), st.timedeltas(timedelta(minutes=1), timedelta(minutes=40)))
def test_late_looks_do_not_move_the_times(hours: int, late: timedelta) -> None:
    due_at = NOW
    for _ in range(hours):
        due_at = next_due(due_at, timedelta(hours=1), due_at + late)

    assert due_at == NOW + timedelta(hours=hours)


@given(
    st.lists(st.timedeltas(timedelta(minutes=10), timedelta(hours=8)), min_size=1, max_size=6),
    st.timedeltas(timedelta(minutes=5), timedelta(hours=1)),
)
def test_an_item_is_looked_at_once_in_each_of_its_intervals(every: list[timedelta], pace: timedelta) -> None:
    """Two days of wakes: an item is looked at as often as its interval, or else the pace, allows."""
    due = [NOW] * len(every)
    looks = [0] * len(every)
    span = timedelta(days=2)
    for wake in range(span // pace + 1):
        now = NOW + wake * pace
        turn = due_together([Item(due_at, one) for due_at, one in zip(due, every, strict=True)], now)
        for number, one in enumerate(every):
            if any(item.due_at == due[number] and item.every == one for item in turn):
                due[number], looks[number] = next_due(due[number], one, now), looks[number] + 1

    for one, count in zip(every, looks, strict=True):
        # The grid of the item, at most one look a wake; the last time may lie just behind the span.
        assert count <= min(span // one, span // pace) + 2
        assert count >= span // (one + pace)


def test_the_first_due_item_of_none_is_none() -> None:
    assert first_due([]) is None
    assert first_due([Item(NOW), Item(NOW - timedelta(1))]) == NOW - timedelta(1)


def test_an_item_without_an_interval_is_never_early() -> None:
    assert ahead(None) == timedelta()
