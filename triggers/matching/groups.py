"""Pure: groups of triggers by one field that their filters compare, which find those that a value of the field may pass."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any
from uuid import UUID

from triggers.matching.expressions.conditions import Prefix, Range

if TYPE_CHECKING:
    from triggers.matching.index import Rule

EXACT = 2**53  # up to this, integers and doubles compare the same everywhere


class Prefixes:
    """Rules by the text that a field begins with. No rule is added after the first look."""

    def __init__(self, placed: Iterable[tuple["Rule", Prefix]]) -> None:
        self.placed = {rule.id: (rule, prefix) for rule, prefix in placed}

    @cached_property
    def by_text(self) -> dict[str, list["Rule"]]:
        found: dict[str, list[Rule]] = {}
        for rule, prefix in self.placed.values():
            found.setdefault(prefix.text, []).append(rule)
        return found

    @cached_property
    def lengths(self) -> list[int]:
        return sorted({len(text) for text in self.by_text})

    def passed_by(self, value: Any) -> Iterator["Rule"]:
        """For a value that is no text, all: their filters may raise."""
        if not isinstance(value, str):
            yield from (rule for rule, _ in self.placed.values())
            return
        for length in self.lengths:
            if length > len(value):
                return
            yield from self.by_text.get(value[:length], ())


Edge = tuple[float, int]  # a number, and on which side of it


class Ranges:
    """Rules by the range of numbers in a field. No rule is added after the first look, either."""

    def __init__(self, placed: Iterable[tuple["Rule", Range]]) -> None:
        self.placed = {rule.id: (rule, range) for rule, range in placed}

    @cached_property
    def above(self) -> tuple[list[Edge], list[tuple["Rule", Range]]]:
        """Those with a lower end, in its order. An open end comes behind the number itself."""
        found = [(rule, range) for rule, range in self.placed.values() if range.low is not None]
        found.sort(key=lambda each: (_low(each[1]), each[0].id))
        return [_low(range) for _, range in found], found

    @cached_property
    def below(self) -> tuple[list[Edge], list[tuple["Rule", Range]]]:
        """Those with nothing but an upper end, in its order. An open end comes before the number itself."""
        found = [(rule, range) for rule, range in self.placed.values() if range.low is None]
        found.sort(key=lambda each: (_high(each[1]), each[0].id))
        return [_high(range) for _, range in found], found

    def passed_by(self, value: Any) -> Iterator["Rule"]:
        """For a value that is no number, all: their filters may raise. Also for one that is not exact as a double."""
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not -EXACT <= value <= EXACT:
            yield from (rule for rule, _ in self.placed.values())
            return
        at = (value, 1)
        edges, above = self.above
        for rule, range in above[: bisect_left(edges, (value, 2))]:
            if range.high is None or _high(range) > at:
                yield rule
        edges, below = self.below
        yield from (rule for rule, _ in below[bisect_right(edges, at) :])


def _low(range: Range) -> Edge:
    return (range.low or 0, 1 if range.with_low else 2)


def _high(range: Range) -> Edge:
    return (range.high or 0, 2 if range.with_high else 1)


Group = Prefixes | Ranges


def with_one(group: Group | None, rule: "Rule", condition: Prefix | Range, *, is_shared: bool) -> Group:
    """The group with another rule. `is_shared`: this one stays as it is, because another index may have it."""
    if group is None or is_shared:
        placed: Any = group.placed.values() if group else ()
        group = Prefixes(placed) if isinstance(condition, Prefix) else Ranges(placed)
    group.placed[rule.id] = (rule, condition)  # type: ignore[assignment]
    return group


def without_one(group: Group, id: UUID) -> Group | None:
    """Another group, without this rule; None: it would be empty."""
    placed: Any = [each for other, each in group.placed.items() if other != id]
    return type(group)(placed) if placed else None
