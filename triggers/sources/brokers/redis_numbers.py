"""The numbers of a Redis stream's entries, which have none: how many were ever added up to an entry, from the answer of XINFO STREAM."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

Id = tuple[int, int]
ZERO: Id = (0, 0)


def id_of(text: str | bytes) -> Id:
    milliseconds, _, sequence = (text if isinstance(text, str) else text.decode()).partition("-")
    return int(milliseconds), int(sequence or 0)


@dataclass(frozen=True, kw_only=True)
class StreamState:
    """A stream at one moment."""

    added: int | None  # entries, ever; None: Redis 6.2, which does not count them
    length: int
    last: Id  # given, also if it is deleted
    first: Id | None  # that it still has; None: it is empty
    newest: Id | None  # that it still has
    highest_deleted: Id  # by XDEL; trimming takes the oldest

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> Self:
        first, newest = info.get("first-entry"), info.get("last-entry")
        return cls(
            added=info.get("entries-added"),
            length=info["length"],
            last=id_of(info["last-generated-id"]),
            first=id_of(first[0]) if first else None,
            newest=id_of(newest[0]) if newest else None,
            highest_deleted=id_of(info.get("max-deleted-entry-id", "0-0")),
        )

    def is_another_than(self, place: Id, number: int) -> bool:
        """Than the stream in which so many entries had been added up to this place; -1: that is not known."""
        now = self.number_of(place)
        return self.last < place or (now is not None and now < number)

    def number_of(self, place: Id, delivered: Sequence[Id] = ()) -> int | None:
        """The number of entries ever added up to this place, the last one just delivered. None: not known now. It is
        known whenever all or none of the stream's remaining entries were delivered.
        """
        if self.added is None:
            return None
        if self.first is None or self.newest is None or place >= self.newest:
            return self.added
        removed = self.added - self.length
        if self.first > place:
            return removed
        if self.first in delivered and self.highest_deleted <= self.first:
            return removed + len(delivered) - delivered.index(self.first)
        return None
