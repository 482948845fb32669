import json

import pytest

from triggers.sources.polling.novelty import KEPT, Item, Memory, Novelty, everything, find_new


def items(*ids: object, says: str = "") -> list[Item]:
    return [Item(id=str(id), content=says or f"about {id}", value=id) for id in ids]


def again(found: Novelty) -> Memory:
    return Memory.load(json.loads(json.dumps(found.memory.dump())))


def ids(found: Novelty) -> list[str]:
    return [found.id_of(item) for item in found.items]


def test_items_are_new_once() -> None:
    first = find_new(items(1, 2), Memory(), most=10)
    second = find_new(items(2, 3, 3), again(first), most=10)
    third = find_new(items(1, 2, 3), again(second), most=10)

    assert (ids(first), ids(second), ids(third)) == (["1", "2"], ["3"], [])
    assert not second.is_turnover


def test_items_over_the_limit_are_found_by_the_next_look() -> None:
    first = find_new(items(1, 2, 3), Memory(), most=2)
    second = find_new(items(1, 2, 3), again(first), most=2)

    assert (ids(first), first.has_more) == (["1", "2"], True)
    assert (ids(second), second.has_more) == (["3"], False)


def fetched(time: int, *names: str) -> list[Item]:
    """A list that gives every item another id at every fetch."""
    return [Item(id=f"{name}-{time}", content=name, value=name) for name in names]


def test_a_list_that_is_known_by_its_content_has_other_ids_at_every_fetch() -> None:
    first = find_new(fetched(1, "a", "b", "c"), Memory(), most=10, is_by_content=True)
    second = find_new(fetched(2, "a", "b", "c"), again(first), most=10, is_by_content=True)
    third = find_new(fetched(3, "b", "c", "d"), again(second), most=10, is_by_content=True)

    assert len(first.items) == 3
    assert not second.items
    assert [item.value for item in third.items] == ["d"]
    assert all(id.startswith("content:") for id in ids(third))


def test_items_with_new_ids_are_new_although_their_texts_are_known() -> None:
    first = find_new(fetched(1, "disk full", "cpu hot"), Memory(), most=10)
    second = find_new(fetched(2, "disk full", "cpu hot"), again(first), most=10)

    assert ids(second) == ["disk full-2", "cpu hot-2"]


def test_a_list_that_an_earlier_version_took_for_one_without_stable_ids_stays_so_until_the_operator_chooses() -> None:
    memory = Memory.load({**everything(fetched(1, "a", "b")).dump(), "are_ids_stable": False})

    second = find_new(fetched(2, "a", "b"), memory, most=10)
    assert (ids(second), second.is_by_content) == ([], True)
    chosen = find_new(fetched(3, "a", "b"), again(second), most=10, is_by_content=True)
    assert ids(chosen) == []
    assert ids(find_new(fetched(4, "a", "b"), again(chosen), most=10)) == ["a-4", "b-4"]


def test_the_newest_of_those_that_left_the_list_are_remembered() -> None:
    memory = find_new(items(*range(950, 1001)), everything(items(*range(1, 1001))), most=10).memory

    assert ids(find_new(items(900, *range(951, 1001)), memory, most=10)) == []


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ([1], [2]),  # a list of the newest item alone
        ([1, 2, 3], [3, 4, 5]),  # one is left, so ids are stable
    ],
)
def test_equal_contents_under_other_ids_are_new_items(before: list[int], now: list[int]) -> None:
    memory = everything(items(*before, says="ping"))

    found = find_new(items(*now, says="ping"), memory, most=10)

    assert ids(found) == [str(id) for id in now if id not in before]


def test_a_list_without_any_known_item_is_a_turnover() -> None:
    assert find_new(items(4, 5), everything(items(1, 2, 3)), most=10).is_turnover
    assert not find_new(items(4, 5), Memory(), most=10).is_turnover
    assert not find_new(items(4, 5), everything(items(1, 2, 3)), most=10, is_log=True).is_turnover


def test_the_memory_is_bounded() -> None:
    memory = Memory()
    for start in range(0, 1_000, 50):
        memory = find_new(items(*range(start, start + 50)), memory, most=100).memory

    assert len(memory.seen) == 50 + KEPT
