"""Which items of a list are new since the last poll.

An item is known by its id, or by its content where the operator has chosen that: some lists give every item another id at every fetch.
Which of the two is never guessed: a list of alerts has other ids and the same texts, too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

KEPT = 500  # items that are remembered besides those of the last poll, for lists that show an old item again

Pair = tuple[str, str]  # digests of an item's id and of its content


@dataclass(frozen=True, kw_only=True)
class Item:
    """An item of a list; `content` is its content without its id."""

    id: str
    content: str
    value: Any

    @property
    def pair(self) -> Pair:
        return digest(self.id), digest(self.content)


@dataclass(frozen=True, kw_only=True)
class Memory:
    """The items of earlier polls, those of the last one first. Earlier versions guessed whether ids are stable; a source that they took
    for one without stable ids stays so until its operator chooses."""

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
    has_more: bool  # there are more new items than requested
    is_by_content: bool
    is_turnover: bool  # nothing of the last poll is left: items may have come and gone between the two

    def id_of(self, item: Item) -> str:
        """The identity of its event."""
        return f"content:{item.pair[1]}" if self.is_by_content else item.id


def find_new(
    items: Sequence[Item], memory: Memory, *, most: int, is_log: bool = False, is_by_content: bool = False
) -> Novelty:
    """The first `most` new items. Those after them are not remembered, so that the next look finds them. The pages of a log have
    other items each. The items are given the oldest first: of those that left the list, the newest are remembered."""
    part = 1 if is_by_content or not memory.are_ids_stable else 0
    known = {pair[part] for pair in memory.seen}
    new: list[Item] = []
    for item in items:
        key = item.pair[part]
        if key not in known:
            known.add(key)
            new.append(item)
    left = {item.pair for item in new[most:]}
    now = [pair for pair in dict.fromkeys(item.pair for item in items) if pair not in left]
    present, latest = set(now), memory.seen[: memory.latest]
    older = [pair for pair in (*reversed(latest), *memory.seen[memory.latest :]) if pair not in present][:KEPT]
    return Novelty(
        items=new[:most],
        # Once the operator has chosen the content, going back to ids is a choice as well.
        memory=Memory(seen=(*now, *older), latest=len(now), are_ids_stable=memory.are_ids_stable or is_by_content),
        has_more=bool(left),
        is_by_content=part == 1,
        is_turnover=len(new) == len(items) > 1 and memory.latest > 1 and not is_log,
    )


def everything(items: Sequence[Item]) -> Memory:
    """Remember all of these items without an event."""
    return find_new(items, Memory(), most=len(items)).memory


def digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _pair(stored: str) -> Pair:
    id, _, content = stored.partition(":")
    return id, content
