"""Pages of the events that a search finds, newest first, at a bounded cost however many events there are.

A page begins below a `seq`, so it costs the same anywhere in the list, and nothing is counted. Which way is fast depends on how
rare the found events are, which PostgreSQL can only guess, so three are tried in turn, each of them bounded:

1. Read the next PROBE events in order: a page of frequent ones is full by then.
2. Read up to FEW found events by any index, in no order: all rare ones, wherever they are.
3. Read on in order, WALK events at a time, for PATIENCE. The page then contains how far it has come, and the next one
  continues there.

Events of one type or one source are in order in an index of their own, which 1 and 3 read.
"""

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db.models import QuerySet

from triggers.events.order import in_parts
from triggers.events.search import Search
from triggers.models import Event

CURSOR = re.compile(r"-?[0-9]{1,18}")  # the `seq` of an event, as text; with a minus, of the last one of the page
PROBE, FEW, WALK = 2_000, 10_000, 20_000  # events
PATIENCE = 0.1  # seconds
Row = tuple[int, UUID]  # `seq` and id of an event


@dataclass(frozen=True, kw_only=True)
class Page:
    """Ids of found events, newest first. `before`: the `seq` below which the next page begins; None: this is the last one. `is_full`:
    False if the time was up before a full page was found."""

    ids: Sequence[UUID]
    before: int | None = None
    is_full: bool = True


def page_of(search: Search, *, size: int, before: int | None = None, among: QuerySet[Event] | None = None) -> Page:
    """The page of found events, `among` these or all, that begins with the first event below this `seq`."""
    found = search.within(search.of(Event.objects.all() if among is None else among)).order_by()
    top = min((end for end in (before, search.upto and search.upto + 1) if end is not None), default=None)
    found = found.filter(seq__lt=top) if top is not None else found
    # First those that wait for dispatch: one that is dispatched meanwhile is found twice, not missed.
    waiting, dispatched = in_parts(found)
    newest = _newest(waiting, size)
    others, floor = _dispatched(search, dispatched, top, size)
    rows = sorted({*others, *(row for row in newest if floor is None or row[0] >= floor)}, reverse=True)
    if len(rows) > size:
        return Page(ids=[id for _, id in rows[:size]], before=rows[size - 1][0])
    return Page(ids=[id for _, id in rows], before=floor, is_full=floor is None)


def page_above(seq: int, size: int) -> Page:
    """The page of all events that ends at this `seq`, as a way back; a shorter one is the first of the list."""
    found: set[Row] = set()
    for part in in_parts(Event.objects.filter(seq__gte=seq)):
        found.update(part.order_by("seq").values_list("seq", "id")[:size])
    return Page(ids=[id for _, id in reversed(sorted(found)[:size])], before=seq)


def _dispatched(search: Search, found: QuerySet[Event], top: int | None, size: int) -> tuple[Sequence[Row], int | None]:
    """The newest of them, at most one more than `size`; if the time was up, those that are not below the returned `seq`."""
    floor = _floor(search, top, PROBE)
    rows = _newest(found, size, floor)
    if len(rows) > size or floor is None:
        return rows, None
    few = list(found.values_list("seq", "id")[: FEW + 1])
    if len(few) <= FEW:
        return few, None
    ends = time.monotonic() + PATIENCE
    while floor is not None and len(rows) <= size and time.monotonic() < ends:
        top, floor = floor, _floor(search, floor, WALK)
        rows += _newest(found.filter(seq__lt=top), size - len(rows), floor)
    return rows, None if len(rows) > size else floor


def _floor(search: Search, top: int | None, distance: int) -> int | None:
    """The `seq` so many events further on; None: the search ends before."""
    events = search.in_order(Event.objects.filter(dispatched_at__isnull=False))
    events = events.filter(seq__lt=top) if top is not None else events
    floor = events.order_by("-seq").values_list("seq", flat=True)[distance : distance + 1].first()
    return None if floor is None or floor <= search.above else floor


def _newest(found: QuerySet[Event], size: int, floor: int | None = None) -> list[Row]:
    """The newest of them that are not below the floor, at most one more than `size`."""
    above = found.filter(seq__gte=floor) if floor is not None else found
    return list(above.order_by("-seq").values_list("seq", "id")[: size + 1])
