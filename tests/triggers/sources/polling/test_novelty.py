import json

import pytest

from triggers.sources.polling.novelty import KEPT, Item, Memory, Novelty, everything, look


def items(*ids: object, says: str = "") -> list[Item]:
    return [Item(id=str(id), content=says or f"about {id}", value=id) for id in ids]


def again(found: Novelty) -> Memory:
    return Memory.load(json.loads(json.dumps(found.memory.dump())))


def ids(found: Novelty) -> list[str]:
    return [found.id_of(item) for item in found.items]


def test_items_are_new_once() -> None:
    first = look(items(1, 2), Memory(), most=10)
    second = look(items(2, 3, 3), again(first), most=10)
    third = look(items(1, 2, 3), again(second), most=10)

    assert (ids(first), ids(second), ids(third)) == (["1", "2"], ["3"], [])
    assert not second.is_turnover


def test_items_over_the_limit_are_found_by_the_next_look() -> None:
    first = look(items(1, 2, 3), Memory(), most=2)
    second = look(items(1, 2, 3), again(first), most=2)

    assert (ids(first), first.has_more) == (["1", "2"], True)
    assert (ids(second), second.has_more) == (["3"], False)


def test_a_list_with_other_ids_at_every_fetch_is_known_by_its_content() -> None:
    def fetched(time: int, *names: str) -> list[Item]:
        return [Item(id=f"{name}-{time}", content=name, value=name) for name in names]

    first = look(fetched(1, "a", "b", "c"), Memory(), most=10)
    second = look(fetched(2, "a", "b", "c"), again(first), most=10)
    third = look(fetched(3, "b", "c", "d"), again(second), most=10)

    assert len(first.items) == 3
    assert not second.items
    assert [item.value for item in third.items] == ["d"]
    assert all(id.startswith("content:") for id in ids(third))


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ([1], [2]),  # a list of the newest item alone
        ([1, 2, 3], [3, 4, 5]),  # one is left, so ids are stable
    ],
)
def test_equal_contents_under_other_ids_are_new_items(before: list[int], now: list[int]) -> None:
    memory = everything(items(*before, says="ping"))

    found = look(items(*now, says="ping"), memory, most=10)

    assert ids(found) == [str(id) for id in now if id not in before]


def test_a_list_of_which_nothing_is_left_says_so() -> None:
    assert look(items(4, 5), everything(items(1, 2, 3)), most=10).is_turnover
    assert not look(items(4, 5), Memory(), most=10).is_turnover
    assert not look(items(4, 5), everything(items(1, 2, 3)), most=10, is_log=True).is_turnover


def test_the_memory_is_bounded() -> None:
    memory = Memory()
    for start in range(0, 1_000, 50):
        memory = look(items(*range(start, start + 50)), memory, most=100).memory

    assert len(memory.seen) == 50 + KEPT
