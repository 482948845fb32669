"""Which items of a list are new since the last poll.

An item is known by its id. Some lists give every item another id at every fetch; those are found out, because then no id of the last
poll is left although the items say the same, and from then on their items are known by what they say.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

KEPT = 500  # items that are remembered besides those of the last poll, for lists that show an old item again

Pair = tuple[str, str]  # digests of an item's id and of its content


@dataclass(frozen=True, kw_only=True)
class Item:
    """An item of a list; `content` is what it says, without its id."""

    id: str
    content: str
    value: Any

    @property
    def pair(self) -> Pair:
        return digest(self.id), digest(self.content)


@dataclass(frozen=True, kw_only=True)
class Memory:
    """The items of earlier polls, those of the last one first."""

    seen: tuple[Pair, ...] = ()
    latest: int = 0
    are_ids_stable: bool = True

    @classmethod
    def load(cls, stored: Any) -> "Memory":
        return cls(
            seen=tuple(_pair(one) for one in stored["seen"]),
            latest=stored["latest"],
            are_ids_stable=stored["are_ids_stable"],
        )

    def dump(self) -> dict[str, Any]:
        return {
            "seen": [":".join(pair) for pair in self.seen],
            "latest": self.latest,
            "are_ids_stable": self.are_ids_stable,
        }


@dataclass(frozen=True, kw_only=True)
class Novelty:
    """The new items in the order of the list, and what to remember when they are recorded."""

    items: Sequence[Item]
    memory: Memory
    has_more: bool  # there are more new items than asked for
    is_turnover: bool  # nothing of the last poll is left: items may have come and gone between the two

    def id_of(self, item: Item) -> str:
        """The identity of its event."""
        return item.id if self.memory.are_ids_stable else f"content:{item.pair[1]}"


def look(items: Sequence[Item], memory: Memory, *, most: int, is_log: bool = False) -> Novelty:
    """The first `most` new items. Those after them are not remembered, so that the next look finds them. The pages of a log have
    other items each."""
    are_ids_stable = memory.are_ids_stable and (is_log or not _have_other_ids(items, memory))
    known = {_key(pair, are_ids_stable) for pair in memory.seen}
    new: list[Item] = []
    for item in items:
        key = _key(item.pair, are_ids_stable)
        if key not in known:
            known.add(key)
            new.append(item)
    left = {item.pair for item in new[most:]}
    now = [pair for pair in dict.fromkeys(item.pair for item in items) if pair not in left]
    older = [pair for pair in memory.seen if pair not in set(now)][:KEPT]
    return Novelty(
        items=new[:most],
        memory=Memory(seen=(*now, *older), latest=len(now), are_ids_stable=are_ids_stable),
        has_more=bool(left),
        is_turnover=len(new) == len(items) > 1 and memory.latest > 1 and not is_log,
    )


def everything(items: Sequence[Item]) -> Memory:
    """To remember all of these without an event."""
    return look(items, Memory(), most=len(items)).memory


def digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _have_other_ids(items: Sequence[Item], memory: Memory) -> bool:
    last = memory.seen[: memory.latest]
    if len(last) < 2 or len(items) < 2:
        return False  # a list of the newest item alone may say the same twice
    ids, contents = ({pair[part] for pair in last} for part in (0, 1))
    if any(item.pair[0] in ids for item in items):
        return False
    return 2 * sum(item.pair[1] in contents for item in items) >= len(items)


def _key(pair: Pair, are_ids_stable: bool) -> str:
    return pair[0] if are_ids_stable else pair[1]


def _pair(stored: str) -> Pair:
    id, _, content = stored.partition(":")
    return id, content
