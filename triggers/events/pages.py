"""Pages of the events that a search finds, newest first, at a bounded cost however many events there are.

A page begins after an id, so it costs the same anywhere in the list, and nothing is counted. Which way is fast depends on how
rare the found events are, which PostgreSQL can only guess, so three are tried in turn, each of them bounded:

1. Read the next PROBE events in order: a page of frequent ones is full by then.
2. Read up to FEW found events by any index, in no order: all rare ones, wherever they are.
3. Read on in order, WALK events at a time, for PATIENCE. The page then says how far it has come, and the next one goes on.

Events of one type or one source are in order in an index of their own, which 1 and 3 read.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db.models import QuerySet

from triggers.events.search import Search
from triggers.models import Event

PROBE, FEW, WALK = 2_000, 10_000, 20_000  # events
PATIENCE = 0.1  # seconds


@dataclass(frozen=True, kw_only=True)
class Page:
    """Ids of found events, newest first. `before`: where the next page begins; None: this is the last one. `is_full`: False if
    the time was up before a full page was found."""

    ids: Sequence[UUID]
    before: UUID | None = None
    is_full: bool = True


def page_of(search: Search, *, size: int, before: UUID | None = None, among: QuerySet[Event] | None = None) -> Page:
    """The page of found events, `among` these or all, that begins with the first event before this id."""
    found = search.of(Event.objects.all() if among is None else among).order_by()
    top = min(filter(None, (before, search.ceiling)), default=None)
    found = found.filter(id__lt=top) if top else found
    # First those that wait for dispatch: one that is dispatched meanwhile is found twice, not missed.
    waiting = _newest(found.filter(dispatched_at=None), size)
    dispatched, floor = _dispatched(search, found.filter(dispatched_at__isnull=False), top, size)
    ids = sorted({*dispatched, *(id for id in waiting if floor is None or id >= floor)}, reverse=True)
    if len(ids) > size:
        return Page(ids=ids[:size], before=ids[size - 1])
    return Page(ids=ids, before=floor, is_full=floor is None)


def _dispatched(
    search: Search, found: QuerySet[Event], top: UUID | None, size: int
) -> tuple[Sequence[UUID], UUID | None]:
    """The newest of them, at most one more than `size`; if the time was up, those that are not below the returned id."""
    floor = _floor(search, top, PROBE)
    ids = _newest(found, size, floor)
    if len(ids) > size or floor is None:
        return ids, None
    few = list(found.values_list("id", flat=True)[: FEW + 1])
    if len(few) <= FEW:
        return few, None
    ends = time.monotonic() + PATIENCE
    while floor is not None and len(ids) <= size and time.monotonic() < ends:
        top, floor = floor, _floor(search, floor, WALK)
        ids += _newest(found.filter(id__lt=top), size - len(ids), floor)
    return ids, None if len(ids) > size else floor


def _floor(search: Search, top: UUID | None, distance: int) -> UUID | None:
    """The id so many events further on; None: the search ends before."""
    events = search.in_order(Event.objects.filter(dispatched_at__isnull=False))
    events = events.filter(id__lt=top) if top else events
    floor = events.order_by("-id").values_list("id", flat=True)[distance : distance + 1].first()
    return None if floor is None or (search.floor and floor < search.floor) else floor


def _newest(found: QuerySet[Event], size: int, floor: UUID | None = None) -> list[UUID]:
    """The newest of them that are not below the floor, at most one more than `size`."""
    above = found.filter(id__gte=floor) if floor else found
    return list(above.order_by("-id").values_list("id", flat=True)[: size + 1])
