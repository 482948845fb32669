"""Which items are due together, and when each is due next. Pure: no clock, no database.

An item is due from its `due_at` on. If one is due, items whose time comes within a tenth of their interval (at most five
minutes) are taken along, so that they do not cost a turn of their own. An item's times lie on a grid of its interval: a late
look does not move the later ones.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

SHARE_AHEAD = 10
MOST_AHEAD = timedelta(minutes=5)


class Timed(Protocol):
    @property
    def due_at(self) -> datetime: ...
    @property
    def every(self) -> timedelta | None: ...


Item = TypeVar("Item", bound=Timed)


def due_together(items: Sequence[Item], now: datetime) -> list[Item]:
    """The items for one turn, in their order; none if none of them is due."""
    if all(item.due_at > now for item in items):
        return []
    return [item for item in items if item.due_at <= now + ahead(item.every)]


def ahead(every: timedelta | None) -> timedelta:
    """How long before its time an item counts as due together with others."""
    return min(every / SHARE_AHEAD, MOST_AHEAD) if every else timedelta()


def next_due(due_at: datetime, every: timedelta | None, now: datetime) -> datetime:
    """When an item is due again that was looked at now: the next time of its grid, which is always later than now. A look long
    before its time (another run has looked at it meanwhile) does not stand for that."""
    if every is None:
        return now
    if due_at > now:
        return due_at + every if due_at <= now + ahead(every) else due_at
    return due_at + ((now - due_at) // every + 1) * every


def first_due(items: Iterable[Timed]) -> datetime | None:
    """When the first of them is due; None: there are no items."""
    return min((item.due_at for item in items), default=None)
