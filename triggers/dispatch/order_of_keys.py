"""Events that wait behind one that is set aside, so that the order per key is the order of arrival even if one fails."""

from collections.abc import Collection, Sequence, Set
from uuid import UUID

import structlog

from triggers.matching.index import Index
from triggers.matching.match import Matched, match_items, wanted_by
from triggers.matching.pending import Identity, Item
from triggers.matching.slow_lane import Costly

log = structlog.get_logger(__name__)

MOST = 5000  # waiting events that are not read; any above this number are read again by each batch


class Behind:
    """The keys and triggers of events that are set aside, and the events that wait for them."""

    def __init__(self, costly: Costly | None = None) -> None:
        self.costly = costly
        self.aside: dict[Identity, tuple[Set[str], Set[UUID]]] = {}
        self.keys: set[str] = set()  # including those of waiting events, since events behind them wait too
        self.triggers: set[UUID] = set()
        self.waiting: set[Identity] = set()

    def hold(self, aside: Collection[Item], index: Index) -> None:
        """Let later events wait for these only. Events that waited for others are read again, in their order."""
        held = {item.identity: item for item in aside}
        if held.keys() == self.aside.keys():
            return
        self.aside = {id: self.aside.get(id) or ordered_by(item, index, self.costly) for id, item in held.items()}
        self.keys = set().union(*(keys for keys, _ in self.aside.values()))
        self.triggers = set().union(*(triggers for _, triggers in self.aside.values()))
        self.waiting = set()

    def without_waiting(self, matched: Sequence[Matched]) -> list[Matched]:
        """The events that do not wait for another event."""
        return [one for one in matched if one.item.identity in self.aside or not self._waits(one)]

    def _waits(self, one: Matched) -> bool:
        waits = not (one.keys.isdisjoint(self.keys) and (one.triggers | one.blocks).isdisjoint(self.triggers))
        if waits:
            self.keys |= one.keys
            self.triggers |= one.blocks
            if len(self.waiting) < MOST:
                self.waiting.add(one.item.identity)
        return waits


def ordered_by(item: Item, index: Index, costly: Costly | None = None) -> tuple[Set[str], Set[UUID]]:
    """The keys of an event, for the order. If they are unknown, or the event is held, the triggers as a whole."""
    try:
        [matched] = costly.match([item], index, patience=0) if costly else match_items([item], index)
    except Exception:
        log.warning("dispatch.key_unknown", event=str(item.event_id), exc_info=True)
        return set(), {rule.id for rule in wanted_by(item, index) if rule.has_key}
    refused = {refusal.trigger_id for refusal in matched.refusals}
    held = {rule.id for rule in wanted_by(item, index) if rule.has_key and rule.id in refused}
    return matched.keys, held | matched.blocks
